//! Keys pressed in a terminal whose screen is drawn: they are not echoed into it, and are gone when it is given back.

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
    /// `None` where input is no terminal, or that of another job: what is typed there is not ours.
    pub(super) fn listen() -> Option<Self> {
        let input = io::stdin();
        let before = tcgetattr(&input).ok()?;
        if tcgetpgrp(&input).ok()? != getpgrp() {
            return None;
        }
        let mut quiet = before.clone();
        // Signals are as before: Ctrl-C, Ctrl-Z.
        quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 0;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&input, OptionalActions::Now, &quiet).ok()?;
        Some(Self { before })
    }

    /// Whether one of them was pressed since the last look.
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
        // What was typed and not read would stand at the next prompt. `OptionalActions::Flush` would wait for output, too.
        self.pressed(&[]);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
