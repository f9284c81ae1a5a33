//! Copies and waits between several memories: a ledger for every pair of them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{Kind, Ledger, Line, Moved, Purpose};

/// From where to where; a wait goes from the device to the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The memory that is read.
    pub from: String,
    /// The memory that is written.
    pub to: String,
}

/// Everything that crossed between memories, and every wait of the host.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    routes: BTreeMap<Route, Ledger>,
}

impl Traffic {
    /// Counts one copy (or one that moved nothing), begun at `begun` and over now.
    pub fn count(
        &mut self,
        kind: Kind,
        purpose: Purpose,
        [from, to]: [&str; 2],
        moved: Moved,
        begun: Instant,
    ) {
        self.ledger([from, to]).count(kind, purpose, moved, begun);
    }

    /// Counts one wait of the host for a device.
    pub fn wait(&mut self, purpose: Purpose, device: &str, host: &str, time: Duration) {
        self.ledger([device, host]).sync(purpose, time);
    }

    fn ledger(&mut self, [from, to]: [&str; 2]) -> &mut Ledger {
        self.routes.entry(Route { from: from.to_owned(), to: to.to_owned() }).or_default()
    }

    /// All lines, by kind and purpose, then by route.
    pub fn lines(&self) -> Vec<(Kind, Purpose, Route, Line)> {
        let of = |(route, ledger): (&Route, &Ledger)| {
            ledger
                .lines()
                .map(|(kind, purpose, line)| (kind, purpose, route.clone(), line))
                .collect::<Vec<_>>()
        };
        let mut lines: Vec<_> = self.routes.iter().flat_map(of).collect();
        lines.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        lines
    }

    /// Bytes that copies of one kind moved.
    pub fn bytes(&self, kind: Kind) -> u64 {
        self.lines().iter().filter(|line| line.0 == kind).map(|line| line.3.bytes).sum()
    }

    /// Copies of one kind that moved bytes, or waits.
    pub fn events(&self, kind: Kind) -> u64 {
        self.lines().iter().filter(|line| line.0 == kind).map(|line| line.3.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_its_own_lines() {
        let mut traffic = Traffic::default();
        let now = Instant::now();
        let route = ["cpu", "virtual:0"];
        traffic.count(Kind::HostToDevice, Purpose::Tensor, route, Moved::Bytes(24), now);
        traffic.count(Kind::HostToDevice, Purpose::Tensor, route, Moved::Bytes(24), now);
        traffic.count(Kind::DeviceToDevice, Purpose::Tensor, ["virtual:0", "virtual:0"], Moved::Nothing, now);
        traffic.wait(Purpose::Log, "virtual:0", "cpu", Duration::from_millis(1));
        let lines: Vec<String> = traffic
            .lines()
            .iter()
            .map(|(kind, purpose, route, line)| {
                let Line { count, noop_count, bytes, .. } = line;
                let (kind, purpose) = (kind.name(), purpose.name());
                format!("{kind} {purpose} {} {} {count} {noop_count} {bytes}", route.from, route.to)
            })
            .collect();
        assert_eq!(
            lines,
            [
                "h2d tensor cpu virtual:0 2 0 48",
                "d2d tensor virtual:0 virtual:0 0 1 0",
                "sync log virtual:0 cpu 1 0 0"
            ]
        );
        assert_eq!((traffic.bytes(Kind::HostToDevice), traffic.events(Kind::Sync)), (48, 1));
    }
}
