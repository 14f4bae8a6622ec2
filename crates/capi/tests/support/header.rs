//! Making a header from the source of a crate, and holding it against the committed one. For the
//! tests of both C libraries.

use std::path::Path;

use cbindgen::{Builder, Config, Language, Style};

/// Compares the header at `path` with what is made from the source, byte for byte, or writes it.
pub(crate) fn check(path: &Path, generated: &str) {
    if std::env::var_os("CLEARWAY_WRITE_HEADER").is_some() {
        std::fs::write(path, generated).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == generated,
        "{} is out of date; run this test with CLEARWAY_WRITE_HEADER=1 and commit the file",
        path.display()
    );
}

/// A header in C and C++ with this guard and introduction.
pub(crate) fn builder(config: Config, style: Style, guard: &str, introduction: &str) -> Builder {
    Builder::new()
        .with_config(Config { usize_is_size_t: true, ..config })
        .with_language(Language::C)
        .with_style(style)
        .with_cpp_compat(true)
        .with_documentation(true)
        .with_include_guard(guard)
        .with_header(introduction)
        .with_no_includes()
}

/// The header of these modules of the crate in `folder`.
pub(crate) fn generate(mut builder: Builder, folder: &Path, modules: &[&str]) -> String {
    for module in modules {
        builder = builder.with_src(folder.join(format!("src/{module}.rs")));
    }
    let mut bytes = Vec::new();
    builder.generate().expect("this crate's own source").write(&mut bytes);
    without_safety_sections(&String::from_utf8(bytes).expect("text"))
}

/// Sections on safety are for readers of the Rust source.
fn without_safety_sections(text: &str) -> String {
    let mut kept = String::new();
    let mut inside = false;
    for line in text.lines() {
        let bare = line.trim();
        inside = (inside || bare == "* # Safety") && bare != "*/";
        if !inside {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept.replace(" *\n */", " */")
}
