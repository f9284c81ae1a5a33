//! The command line, quoted for a POSIX shell.

/// Joins arguments into one line, quoting those that a POSIX shell would otherwise change.
pub fn command_line<S: AsRef<str>>(arguments: impl IntoIterator<Item = S>) -> String {
    let quoted: Vec<String> = arguments.into_iter().map(|argument| quote(argument.as_ref())).collect();
    quoted.join(" ")
}

fn quote(argument: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "%+-./:=@_,".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    if argument.chars().any(char::is_control) {
        // An unescaped line break would end a comment that contains the command.
        let escaped: String = argument
            .chars()
            .map(|c| match c {
                '\n' => "\\n".to_owned(),
                '\'' | '\\' => format!("\\{c}"),
                c if c.is_ascii_control() => format!("\\x{:02x}", c as u32),
                c => c.to_string(),
            })
            .collect();
        return format!("$'{escaped}'");
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_quotes_gets_them() {
        let line = command_line([
            "runner",
            "a b.toml",
            "devices.num_gpus=0,1",
            "~optimizer.adam",
            "it's",
            "",
            "x\ny'",
        ]);
        assert_eq!(line, r"runner 'a b.toml' devices.num_gpus=0,1 '~optimizer.adam' 'it'\''s' '' $'x\ny\''");
    }
}
