//! Ranks within one process, for tests.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, atomic::AtomicUsize},
    thread,
};

use super::{ProcessGroup, Tag, Traffic, Transfer, Transport};

type Mail = Arc<Mutex<BTreeMap<(usize, usize, Tag), VecDeque<Vec<u8>>>>>;

pub struct Memory {
    rank: usize,
    size: usize,
    mail: Mail,
    /// What all ranks together have sent for sums.
    sent: Arc<Mutex<Traffic>>,
}

enum Message {
    Sent,
    Awaited { mail: Mail, key: (usize, usize, Tag), len: usize },
}

impl Memory {
    pub fn ranks(size: usize) -> Vec<Self> {
        let (mail, sent) = (Mail::default(), Arc::new(Mutex::new(Traffic { messages: 0, bytes: 0 })));
        let rank = |rank| Self { rank, size, mail: Arc::clone(&mail), sent: Arc::clone(&sent) };
        (0..size).map(rank).collect()
    }
}

/// A group for each rank, each on a host of its own.
pub fn groups(size: usize) -> Vec<Arc<ProcessGroup>> {
    counted_groups(size).0
}

/// The same, together with a count of what they send for sums.
pub fn counted_groups(size: usize) -> (Vec<Arc<ProcessGroup>>, Arc<Mutex<Traffic>>) {
    let ranks = Memory::ranks(size);
    let sent = Arc::clone(&ranks[0].sent);
    let join = |memory: Memory| {
        let host = format!("h{}", memory.rank);
        ProcessGroup::over(Box::new(memory), &Arc::<AtomicUsize>::default(), &host).expect("all join")
    };
    let groups = thread::scope(|scope| {
        let ranks: Vec<_> = ranks.into_iter().map(|memory| scope.spawn(move || join(memory))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    });
    (groups, sent)
}

/// Lets all leave, each in a thread of its own, since they wait for each other.
pub fn leave(groups: &[Arc<ProcessGroup>]) {
    thread::scope(|scope| groups.iter().for_each(|group| drop(scope.spawn(|| group.finish()))));
}

impl Transport for Memory {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn name(&self) -> &str {
        "memory"
    }

    fn send(&self, to: usize, tag: Tag, bytes: Vec<u8>) -> Box<dyn Transfer> {
        if matches!(tag, Tag::Gradients | Tag::Sums) {
            let mut sent = self.sent.lock().expect("no panic");
            (sent.messages, sent.bytes) = (sent.messages + 1, sent.bytes + bytes.len() as u64);
        }
        self.mail.lock().expect("no panic").entry((self.rank, to, tag)).or_default().push_back(bytes);
        Box::new(Message::Sent)
    }

    fn receive(&self, from: usize, tag: Tag, len: usize) -> Box<dyn Transfer> {
        Box::new(Message::Awaited { mail: Arc::clone(&self.mail), key: (from, self.rank, tag), len })
    }

    fn call(&self) -> Option<u64> {
        None
    }

    fn finish(&self) {}
}

impl Transfer for Message {
    fn poll(&mut self) -> Result<Option<Vec<u8>>, String> {
        let Self::Awaited { mail, key, len } = self else { return Ok(Some(Vec::new())) };
        let message = mail.lock().expect("no panic").get_mut(key).and_then(VecDeque::pop_front);
        message.map_or(Ok(None), |message| {
            if message.len() == *len { Ok(Some(message)) } else { Err(format!("{} bytes", message.len())) }
        })
    }
}
