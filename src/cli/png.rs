//! Converts drawings to PNG with a program installed on this machine: rendering text ourselves would need
//! fonts and another library.

use std::{
    io::{self, Write},
    process::{Command, Stdio},
    thread,
};

/// The first bytes of every PNG file.
pub const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Programs that read an SVG and write a PNG of three times its size (288 dots per inch).
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("rsvg-convert", &["--zoom", "3"]),
    ("resvg", &["--zoom", "3", "-", "-c"]),
    ("inkscape", &["--pipe", "--export-type=png", "--export-dpi=288", "--export-filename=-"]),
];

/// The index of the first program that can be started; their names if there is none.
pub fn find() -> Result<usize, String> {
    let starts = |name: &str| {
        let asked = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    let names = PROGRAMS.map(|(name, _)| format!("`{name}`"));
    PROGRAMS.iter().position(|(name, _)| starts(name)).ok_or_else(|| names.join(", "))
}

/// Converts an SVG to PNG.
///
/// # Errors
/// The program cannot be started, or does not write a PNG.
pub fn convert(program: usize, svg: &str) -> io::Result<Vec<u8>> {
    let (name, arguments) = PROGRAMS[program];
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let input = child.stdin.take();
    let output = thread::scope(|scope| {
        // Ignore write errors: a program that stops reading prints the reason, and writes no PNG.
        scope.spawn(move || input.map(|mut input| input.write_all(svg.as_bytes())));
        child.wait_with_output()
    })?;
    if output.status.success() && output.stdout.starts_with(PNG) {
        return Ok(output.stdout);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("`{name}` fails: {}", words.lines().next().unwrap_or("it writes no PNG"))))
}
