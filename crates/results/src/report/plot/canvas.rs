//! A canvas of cells with 2 x 4 dots each, printed as Unicode braille patterns.

/// The bit of each dot in the patterns from U+2800 on, by row and column.
const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

pub(super) struct Canvas {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Dots of each cell, and the curve that set the last of them.
    cells: Vec<(u8, usize)>,
}

impl Canvas {
    /// A canvas of `width` x `height` cells.
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self { width, height, cells: vec![(0, 0); width * height] }
    }

    /// The number of dots horizontally and vertically.
    pub(super) fn dots(&self) -> (usize, usize) {
        (2 * self.width, 4 * self.height)
    }

    fn set(&mut self, x: usize, y: usize, curve: usize) {
        if let Some((dots, owner)) = self.cells.get_mut(y / 4 * self.width + x / 2) {
            *dots |= DOTS[y % 4][x % 2];
            *owner = curve;
        }
    }

    /// Draws a straight line between two dots (Bresenham 1965).
    pub(super) fn line(&mut self, from: (usize, usize), to: (usize, usize), curve: usize) {
        let (mut x, mut y) = (from.0 as i64, from.1 as i64);
        let (to_x, to_y) = (to.0 as i64, to.1 as i64);
        let (dx, dy) = ((to_x - x).abs(), -(to_y - y).abs());
        let (step_x, step_y) = ((to_x - x).signum(), (to_y - y).signum());
        let mut error = dx + dy;
        loop {
            self.set(x as usize, y as usize, curve);
            if (x, y) == (to_x, to_y) {
                return;
            }
            let twice = 2 * error;
            if twice >= dy {
                error += dy;
                x += step_x;
            }
            if twice <= dx {
                error += dx;
                y += step_y;
            }
        }
    }

    /// The cells of a row: pattern and curve; `None` for an empty cell.
    pub(super) fn row(&self, row: usize) -> impl Iterator<Item = Option<(char, usize)>> + '_ {
        let cells = &self.cells[row * self.width..][..self.width];
        cells.iter().map(|&(dots, curve)| {
            (dots != 0).then(|| (char::from_u32(0x2800 + u32::from(dots)).unwrap_or('.'), curve))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_join_their_ends() {
        let mut canvas = Canvas::new(4, 2);
        canvas.line((0, 7), (7, 0), 0);
        canvas.line((3, 3), (3, 3), 1);
        let text = |row| -> String { canvas.row(row).map(|cell| cell.map_or(' ', |(c, _)| c)).collect() };
        assert_eq!([text(0), text(1)], [" ⢀⡠⠊", "⡠⠊  "].map(str::to_owned));
        assert_eq!(canvas.row(0).nth(1), Some(Some(('⢀', 1))));
    }
}
