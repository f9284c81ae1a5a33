//! Reads keys while the screen is used for drawing: they are not echoed, and none are left over when the
//! terminal is restored.

use std::io;

use rustix::{
    process::getpgrp,
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr},
};

/// The terminal's input, key by key.
pub(super) struct Keys {
    before: Termios,
}

impl Keys {
    /// `None` if standard input is not a terminal, or the terminal belongs to another job: that input is not
    /// ours.
    pub(super) fn listen() -> Option<Self> {
        let input = io::stdin();
        let before = tcgetattr(&input).ok()?;
        if tcgetpgrp(&input).ok()? != getpgrp() {
            return None;
        }
        let mut quiet = before.clone();
        // Ctrl-C and Ctrl-Z still send signals.
        quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 0;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&input, OptionalActions::Now, &quiet).ok()?;
        Some(Self { before })
    }

    /// Whether one of these keys was pressed since the last call.
    pub(super) fn pressed(&self, keys: &[u8]) -> bool {
        let (mut buffer, mut found) = ([0; 64], false);
        while let Ok(count @ 1..) = rustix::io::read(io::stdin(), &mut buffer) {
            found |= buffer[..count].iter().any(|key| keys.contains(key));
        }
        found
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // Unread input would appear at the next prompt. `OptionalActions::Flush` would discard it too, but
        // also wait for output.
        self.pressed(&[]);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
