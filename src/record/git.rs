//! The git commit that a spec stands in, and whether tracked files differ from it.
//!
//! The commit is read from git's files by hand, in microseconds. Whether files differ only `git status` can say; it
//! runs on a thread of its own from the start of the run, and is asked at the end.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, sync_channel},
    },
    thread,
    time::Duration,
};

/// How long the end of a run waits for a slow `git status`.
const PATIENCE: Duration = Duration::from_secs(2);

/// The commit of the repository that `folder` stands in; `None` outside of one, or before its first commit.
fn commit(folder: &Path) -> Option<String> {
    let git = repository(folder)?;
    let head = read(&git.join("HEAD"))?;
    let Some(reference) = head.strip_prefix("ref: ") else { return is_hash(&head).then_some(head) };
    // A linked worktree has a HEAD of its own and shares the branches with the main one.
    let common = read(&git.join("commondir")).map_or_else(|| git.clone(), |path| git.join(path));
    let loose = read(&git.join(reference)).or_else(|| read(&common.join(reference)));
    loose.filter(|hash| is_hash(hash)).or_else(|| packed(&common, reference))
}

/// The `.git` folder of the nearest repository above.
fn repository(folder: &Path) -> Option<PathBuf> {
    let folder = fs::canonicalize(folder).ok()?;
    let git = folder.ancestors().map(|folder| folder.join(".git")).find(|git| git.exists())?;
    if git.is_dir() {
        return Some(git);
    }
    let target = read(&git)?;
    Some(git.parent()?.join(target.strip_prefix("gitdir: ")?))
}

fn packed(git: &Path, reference: &str) -> Option<String> {
    let text = fs::read_to_string(git.join("packed-refs")).ok()?;
    let line = text.lines().find(|line| line.split_once(' ').is_some_and(|(_, name)| name == reference))?;
    line.split_once(' ').map(|(hash, _)| hash.to_owned())
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

fn is_hash(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A question to git, asked in the background: best at the very start, so that the answer is there at the end. All runs
/// of a process share one.
#[derive(Clone)]
pub struct GitQuery {
    pub(super) commit: Option<String>,
    dirty: Option<Arc<Mutex<Dirty>>>,
}

/// The answer on its way.
struct Dirty {
    coming: Receiver<Option<bool>>,
    came: Option<Option<bool>>,
    patience: Duration,
}

impl GitQuery {
    /// Asks about the repository that `folder` stands in; outside of one there is nothing to ask.
    pub fn start(folder: &Path) -> Self {
        let Some(commit) = commit(folder) else { return Self { commit: None, dirty: None } };
        let (tell, coming) = sync_channel(1);
        let folder = folder.to_owned();
        let thread = thread::Builder::new().name("git".to_owned()).spawn(move || {
            let _ = tell.send(ask_git(&folder)); // nobody may be waiting any more
        });
        let dirty = Dirty { coming, came: None, patience: PATIENCE };
        Self { commit: Some(commit), dirty: thread.is_ok().then(|| Arc::new(Mutex::new(dirty))) }
    }

    /// Whether tracked files differ from the commit; `None` where git is not there, says nothing, or takes too long.
    pub(super) fn dirty(&self) -> Option<bool> {
        let mut dirty = self.dirty.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        if dirty.came.is_none() {
            dirty.came = dirty.coming.recv_timeout(dirty.patience).ok();
            // A sweep waits for a slow git once, not at the end of every trial.
            dirty.patience = Duration::ZERO;
        }
        dirty.came?
    }
}

fn ask_git(folder: &Path) -> Option<bool> {
    // Untracked files are left out: a run folder below the repository would make every second run dirty.
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then_some(!output.stdout.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0123456789abcdef0123456789abcdef01234567";

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_branch_loose_packed_and_detached() {
        let folder = tempfile::tempdir().unwrap();
        let (root, git) = (folder.path(), folder.path().join(".git"));
        let inner = root.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        write(&git.join("HEAD"), "ref: refs/heads/main\n");
        assert_eq!(commit(&inner), None);
        write(&git.join("packed-refs"), &format!("# pack-refs\n{HASH} refs/heads/main\n"));
        assert_eq!(commit(&inner).as_deref(), Some(HASH));
        let newer = HASH.replace('0', "9");
        write(&git.join("refs/heads/main"), &format!("{newer}\n"));
        assert_eq!(commit(&inner), Some(newer));
        write(&git.join("HEAD"), &format!("{HASH}\n"));
        assert_eq!(commit(&inner).as_deref(), Some(HASH));
    }

    #[test]
    fn a_linked_worktree_shares_its_branches() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("main/.git");
        let linked = main.join("worktrees/w");
        write(&linked.join("HEAD"), "ref: refs/heads/w\n");
        write(&linked.join("commondir"), "../..\n");
        write(&main.join("refs/heads/w"), HASH);
        write(&folder.path().join("w/.git"), &format!("gitdir: {}\n", linked.display()));
        assert_eq!(commit(&folder.path().join("w")).as_deref(), Some(HASH));
        assert_eq!(GitQuery::start(&folder.path().join("w")).commit.as_deref(), Some(HASH));
        assert!(GitQuery::start(folder.path()).commit.is_none());
    }

    #[test]
    fn one_answer_serves_all_who_ask() {
        let (tell, coming) = sync_channel(1);
        tell.send(Some(true)).unwrap();
        let dirty = Dirty { coming, came: None, patience: PATIENCE };
        let query = GitQuery { commit: None, dirty: Some(Arc::new(Mutex::new(dirty))) };
        assert_eq!([query.clone().dirty(), query.dirty()], [Some(true); 2]);
    }
}
