//! Times of single products, by marks between them on the device: nobody waits for them meanwhile.

use super::Device;
use crate::{device::DeviceError, event::Spread};

/// Most laps that are kept.
const MOST: usize = 1024;

/// Laps of one product each; of more than [`MOST`] products, means over 2, 4, ... products in a row.
pub struct Laps {
    /// Numbers of the marks, in order of time, and those that are free.
    marks: Vec<usize>,
    free: Vec<usize>,
    /// Products of a lap.
    stride: u64,
    /// Products so far.
    products: u64,
}

impl Laps {
    /// Makes the marks for this number of products ahead of them, so that they are not timed.
    pub fn new(products: u64, device: &mut Device) -> Result<Self, DeviceError> {
        let free = (0..=usize::try_from(products).map_or(MOST, |products| products.min(MOST))).collect();
        let laps = Self { marks: Vec::new(), free, stride: 1, products: 0 };
        laps.free.iter().try_for_each(|number| device.mark(*number))?;
        Ok(laps)
    }

    /// Begins the first lap.
    pub fn start(&mut self, device: &mut Device) -> Result<(), DeviceError> {
        self.mark(device)
    }

    /// A product was done, or given to the device.
    pub fn product(&mut self, device: &mut Device) -> Result<(), DeviceError> {
        self.products += 1;
        if !self.products.is_multiple_of(self.stride) {
            return Ok(());
        }
        if self.free.is_empty() {
            self.stride *= 2;
            let mut place = 0;
            let Self { marks, free, .. } = self;
            marks.retain(|number| {
                place += 1;
                let stays = place % 2 == 1;
                free.extend((!stays).then_some(*number));
                stays
            });
        }
        if self.products.is_multiple_of(self.stride) { self.mark(device) } else { Ok(()) }
    }

    fn mark(&mut self, device: &mut Device) -> Result<(), DeviceError> {
        let Some(number) = self.free.pop() else { return Ok(()) };
        self.marks.push(number);
        device.mark(number)
    }

    /// Over how many products each time is a mean.
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// Of one product; the device must have finished.
    pub fn spread(&self, device: &Device) -> Result<Spread, DeviceError> {
        let seconds = |pair: &[usize]| Ok(device.seconds_between([pair[0], pair[1]])? / self.stride as f64);
        self.marks.windows(2).map(seconds).collect::<Result<Vec<f64>, _>>().map(Spread::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::DeviceId;

    /// However many products there are, the laps cover all of them but a last part of a lap.
    #[test]
    fn laps_of_many_products_become_longer() {
        let mut device = Device::open(DeviceId::Cpu, 1).unwrap();
        for (products, stride, count) in
            [(0, 1, 0), (1, 1, 1), (7, 1, 7), (1024, 1, 1024), (1025, 2, 512), (2050, 4, 512), (5000, 8, 625)]
        {
            let mut laps = Laps::new(products, &mut device).unwrap();
            laps.start(&mut device).unwrap();
            (0..products).for_each(|_| laps.product(&mut device).unwrap());
            assert_eq!((laps.stride(), laps.marks.len() - 1), (stride, count), "{products}");
            let all_s = device.seconds_between([laps.marks[0], laps.marks[count]]).unwrap();
            let Spread { p50_s, min_s, max_s } = laps.spread(&device).unwrap();
            assert!(min_s <= p50_s && p50_s <= max_s && max_s <= all_s, "{min_s} {p50_s} {max_s} {all_s}");
        }
    }
}
