# `make demo` shows Clearway at work, `make test` runs all tests. Both install what they need.
# The other targets are for working on Clearway; see CONTRIBUTING.md.

CARGO := tools/cargo.sh
# Where cargo puts what it builds.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Seconds that each fuzz target runs.
FUZZ_SECONDS ?= 20
# Minutes that `make soak` runs.
SOAK_MINUTES ?= 60
# What `make mutants` plants bugs in; with SAMPLE=150 in so many places, chosen by SEED.
MUTANTS ?= transport congestion channel classify switch control

.PHONY: demo test own-stack build install uninstall packages test-packages test-setup lint deny
.PHONY: crates loom miri fuzz soak soak-faults mutants bench-instructions bench-classify profile
.PHONY: clean

demo: build
	@tools/setup.sh demo
	@$(TARGET)/release/clearway demo
	@tools/demo-tcp.sh $(TARGET)/release/clearway

# An unprivileged program with its own TCP/IP stack, beside the Linux kernel. Needs root for
# namespaces.
own-stack:
	@tools/setup.sh test
	@tools/own-stack.sh

build:
	@tools/setup.sh build
	@tools/release.sh
	@tools/bench-app.sh $(TARGET)/release

test:
	@tools/setup.sh test
	@tools/test.sh

# Installs the daemon with its systemd unit, the C library, documents and the Wireshark dissector
# below PREFIX; tools/install.sh says what else can be chosen. With sudo, what the user has built is
# installed as it is: root mostly has no toolchain.
PREFIX ?= /usr/local
install: export PREFIX := $(PREFIX)
install: export BUILD := $(TARGET)/release
install: $(if $(and $(SUDO_USER),$(wildcard $(TARGET)/release/clearway)),,build)
	@tools/install.sh

# Takes away what `make install` with the same PREFIX and DESTDIR has installed.
uninstall: export PREFIX := $(PREFIX)
uninstall:
	@tools/uninstall.sh

# .deb and .rpm packages, and the files of a container image, in target/packages.
packages: export BUILD := $(TARGET)/release
packages: build
	@tools/setup.sh packages
	@tools/packages.sh

# Each package installed, used and removed in a clean root; needs root, mmdebstrap and some minutes.
test-packages:
	@tools/setup.sh packages
	@tools/test-packages.sh

# Every path of tools/setup.sh in clean roots: of Debian 12, or SUITE=noble; needs root, mmdebstrap,
# half an hour.
test-setup:
	@tools/setup.sh packages
	@tools/test-setup.sh

lint:
	@tools/setup.sh lint
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

# Licences, duplicates, sources and advisories of what Clearway depends on.
deny:
	tools/deny.sh

# The app library and what it stands on, as they would be published, each built from its package.
# Cargo keeps what it has unpacked and built of a version, also if the package is another now.
crates:
	rm -rf target/crates "$${CARGO_HOME:-$$HOME/.cargo}"/registry/src/-*/clearway-*
	CARGO_TARGET_DIR=target/crates $(CARGO) package --allow-dirty \
		-p clearway-base -p clearway-channel -p clearway-client -p clearway-tokio

# The rings and the sleep and wake-up handshake under every interleaving that loom finds.
loom:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
		$(CARGO) test -p clearway-channel --release --lib

# Channel under Miri, which sees undefined behaviour.
miri:
	tools/nightly.sh miri test -p clearway-channel --lib

# Every fuzz target for a short while.
fuzz:
	tools/fuzz.sh $(FUZZ_SECONDS)

# Whole networks with every kind of bad luck, with ever new seeds.
soak:
	CLEARWAY_SOAK_MINUTES=$(SOAK_MINUTES) \
		$(CARGO) test --release -p clearway-sim --test seeds -- --ignored --nocapture soak

# Two hosts and a bad wire between them, likewise.
soak-faults:
	CLEARWAY_SOAK_MINUTES=$(SOAK_MINUTES) \
		$(CARGO) test --release -p clearway-engine --test faults -- --ignored --nocapture soak

# Bugs planted one by one in a copy of the tree: which of them does no test see? An hour or more;
# not in CI.
mutants:
	tools/mutants.sh $(MUTANTS)

# Instructions per echo, message and frame, by part, against what was accepted last.
bench-instructions:
	@tools/setup.sh instructions
	@tools/release.sh
	$(TARGET)/release/clearway bench instructions --budget bench/instructions.json

# Which code runs often, for the compiler at hand: profile/README.md. Ten minutes.
profile:
	@tools/setup.sh profile
	@tools/profile.sh

# The tables of VIFs over the ClassBench rule files in SETS, beside librte_acl.
SETS ?= bench/classify/sets
bench-classify: build
	tools/bench-classify.sh $(SETS)

clean:
	$(CARGO) clean
