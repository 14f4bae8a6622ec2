//! Man pages and completions, as `make install` has the command write them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `clearway documents` writes, until the end of the test.
struct Documents(PathBuf);

impl Documents {
    fn write(name: &str) -> Self {
        let name = format!("clearway-documents-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let status = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .arg("documents")
            .arg(&directory)
            .status()
            .expect("the command starts");
        assert!(status.success());
        Self(directory)
    }

    fn read(&self, place: &str) -> String {
        let path = self.0.join(place);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

impl Drop for Documents {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The subcommands and long options that the help of a command names.
fn help(arguments: &[&str]) -> (Vec<String>, Vec<String>) {
    let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(arguments)
        .arg("--help")
        .output()
        .expect("the command starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let section = |title: &str| {
        let lines = text.lines().skip_while(move |line| *line != title).skip(1);
        lines.take_while(|line| !line.is_empty()).map(str::trim).collect::<Vec<_>>()
    };
    let first = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let commands = section("Commands:").into_iter().map(first).filter(|name| name != "help");
    let options = section("Options:").into_iter().filter_map(|line| {
        let at = line.starts_with('-').then(|| line.find("--"))??;
        Some(first(&line[at..]))
    });
    (commands.collect(), options.collect())
}

#[test]
fn every_command_and_option_has_its_place_in_a_man_page() {
    let documents = Documents::write("man");
    let (commands, _) = help(&[]);
    assert!(commands.len() >= 9, "{commands:?}");
    let index = documents.read("man/man1/clearway.1");
    for command in &commands {
        assert!(index.contains(&format!("clearway\\-{command}(1)")), "{command} in {index}");
        let page = documents.read(&format!("man/man1/clearway-{command}.1"));
        for option in help(&[command]).1 {
            let option = option.replace('-', "\\-");
            assert!(page.contains(&option), "{option} of {command} in {page}");
        }
    }
    let daemon = documents.read("man/man8/clearwayd.8");
    assert!(daemon.contains(".TH clearwayd 8") && daemon.contains("\\-\\-check"), "{daemon}");
    assert!(!documents.0.join("man/man1/clearway-bench-role.1").exists(), "it is hidden");
}

/// Bash is asked what may follow `words`, as the Tab key does.
fn completed(script: &Path, words: &str) -> String {
    let script = format!(
        "source {} && COMP_WORDS=({words}) && COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) && \
         _clearway clearway \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \
         ${{COMPREPLY[@]}}",
        script.display()
    );
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash starts");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

#[test]
fn the_tab_key_completes_commands_and_options() {
    let documents = Documents::write("tab");
    let script = documents.0.join("bash-completion/completions/clearway");
    assert_eq!(completed(&script, "clearway stat"), "status");
    assert_eq!(completed(&script, "clearway ping --cou"), "--count");
    assert!(documents.read("zsh/site-functions/_clearway").starts_with("#compdef clearway"));
    assert!(documents.read("fish/vendor_completions.d/clearway.fish").contains("vif"));
}
