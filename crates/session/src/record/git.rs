//! The git commit of the repository that contains a spec, and whether tracked files differ from it.
//!
//! The commit is read directly from git's files, in microseconds. Only `git status` can tell whether files
//! differ; it runs on its own thread from the start of the run, and its answer is fetched at the end.
//!
//! A repository may come from anyone, and its settings can name commands that git runs when it looks for
//! changes. So git is restricted to the repository found here, its file monitor is off, nothing is fetched,
//! and a repository that defines its own filters is not queried at all; see [`settings_run_code`].

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, sync_channel},
    },
    thread,
    time::Duration,
};

use crate::host::{end_with_parent, lock, open_regular};

/// How long the end of a run waits for a slow `git status`.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum bytes read from one of git's files; in an untrusted repository they may have any size.
const MOST_BYTES: u64 = 16 << 20;

/// The commit that a repository is at; `None` before its first one.
fn commit(root: &Path) -> Option<String> {
    let git = git_folder(root)?;
    let head = read(&git.join("HEAD"))?;
    let Some(reference) = head.strip_prefix("ref: ") else { return is_hash(&head).then_some(head) };
    // A linked worktree has its own HEAD and shares the branches with the main one.
    let common = read(&git.join("commondir")).map_or_else(|| git.clone(), |path| git.join(path));
    let loose = read(&git.join(reference)).or_else(|| read(&common.join(reference)));
    loose.filter(|hash| is_hash(hash)).or_else(|| packed(&common, reference))
}

/// The work tree of the nearest repository that contains `folder`.
fn work_tree(folder: &Path) -> Option<PathBuf> {
    let folder = fs::canonicalize(folder).ok()?;
    folder.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_owned)
}

/// The git directory of a work tree: `.git`, or the folder that a file of that name points to.
fn git_folder(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    Some(root.join(read(&git)?.strip_prefix("gitdir: ")?))
}

fn packed(git: &Path, reference: &str) -> Option<String> {
    let text = read(&git.join("packed-refs"))?;
    let line = text.lines().find(|line| line.split_once(' ').is_some_and(|(_, name)| name == reference))?;
    line.split_once(' ').map(|(hash, _)| hash.to_owned())
}

fn read(path: &Path) -> Option<String> {
    let (file, _) = open_regular(path).ok()?;
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned())
}

fn is_hash(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A git query that runs in the background. Start it as early as possible, so that the answer is there at the
/// end. All runs of a process share one.
#[derive(Clone)]
pub struct GitQuery {
    pub(super) commit: Option<String>,
    dirty: Option<Arc<Mutex<Dirty>>>,
}

/// The pending answer.
struct Dirty {
    coming: Receiver<Option<bool>>,
    came: Option<Option<bool>>,
    /// The running git process; killed if it takes too long.
    child: Arc<Mutex<Option<Child>>>,
}

impl GitQuery {
    /// Asks about the repository that contains `folder`; does nothing outside a repository.
    pub fn start(folder: &Path) -> Self {
        let root = work_tree(folder);
        let commit = root.as_deref().and_then(commit);
        let (Some(root), Some(commit)) = (root, commit) else { return Self { commit: None, dirty: None } };
        let (answer, coming) = sync_channel(1);
        let child = Arc::new(Mutex::new(None));
        let dirty = Dirty { coming, came: None, child: Arc::clone(&child) };
        let thread = thread::Builder::new().name("git".to_owned()).spawn(move || {
            let _ = answer.send(ask_git(&root, &child)); // the receiver may be gone
        });
        Self { commit: Some(commit), dirty: thread.is_ok().then(|| Arc::new(Mutex::new(dirty))) }
    }

    /// Whether tracked files differ from the commit; `None` if git is missing, was not asked, or takes too
    /// long.
    pub(super) fn dirty(&self) -> Option<bool> {
        let mut dirty = lock(self.dirty.as_ref()?);
        if dirty.came.is_none() {
            // Keep the answer, so that a sweep waits for a slow git once and not at the end of every trial.
            dirty.came = Some(dirty.coming.recv_timeout(STATUS_TIMEOUT).ok().flatten());
            if let Some(mut child) = lock(&dirty.child).take() {
                let _ = child.kill(); // it may have ended by itself
                let _ = child.wait();
            }
        }
        dirty.came?
    }
}

fn ask_git(root: &Path, running: &Mutex<Option<Child>>) -> Option<bool> {
    if settings_run_code(root)? {
        return None;
    }
    // Untracked files are ignored: otherwise a run folder inside the repository would make the next run
    // dirty.
    let mut child = git(root)
        .args(["status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"])
        .spawn()
        .ok()?;
    let mut answer = child.stdout.take()?;
    *lock(running) = Some(child);
    // A single byte of output means dirty; the rest may be long.
    let is_dirty = answer.read(&mut [0]).ok()? > 0;
    drop(answer);
    let mut child = lock(running).take()?;
    (is_dirty | child.wait().ok()?.success()).then_some(is_dirty)
}

/// Whether the repository's own settings define filters: commands that git would run on files to compare
/// them. The user's own filters, such as Git LFS's, are trusted.
fn settings_run_code(root: &Path) -> Option<bool> {
    let filters = ["config", "--show-scope", "--name-only", "--get-regexp", r"^filter\."];
    let output = git(root).args(filters).output().ok()?;
    let scopes = String::from_utf8_lossy(&output.stdout);
    // Exit code 1 means that there are none.
    matches!(output.status.code(), Some(0 | 1))
        .then(|| scopes.lines().any(|line| line.starts_with("local") || line.starts_with("worktree")))
}

/// A git command restricted to the repository of `root`, which runs nothing that the repository names and
/// fetches nothing. Git's own check that the repository belongs to the user stays on.
fn git(root: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).arg("--no-optional-locks");
    for setting in ["core.fsmonitor=false", "safe.bareRepository=explicit", "protocol.allow=never"] {
        git.args(["-c", setting]);
    }
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"] {
        git.env_remove(variable);
    }
    git.env("GIT_CEILING_DIRECTORIES", root.parent().unwrap_or(root)).env("GIT_NO_LAZY_FETCH", "1");
    git.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    end_with_parent(&mut git);
    git
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
    fn a_branch_loose_packed_detached_and_linked() {
        let folder = tempfile::tempdir().unwrap();
        let (root, git) = (folder.path().join("main"), folder.path().join("main/.git"));
        let inner = root.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let commit = |folder: &Path| GitQuery::start(folder).commit;
        assert_eq!(commit(folder.path()), None);
        let newer = HASH.replace('0', "9");
        let packed = format!("# pack-refs\n{HASH} refs/heads/main\n");
        for (file, text, expected) in [
            ("HEAD", "ref: refs/heads/main\n", None),
            ("packed-refs", &packed, Some(HASH)),
            ("refs/heads/main", &newer, Some(&newer)),
            ("HEAD", HASH, Some(HASH)),
        ] {
            write(&git.join(file), text);
            assert_eq!(commit(&inner).as_deref(), expected, "{file}");
        }
        // A linked worktree shares the branches.
        let linked = git.join("worktrees/w");
        write(&linked.join("HEAD"), "ref: refs/heads/main\n");
        write(&linked.join("commondir"), "../..\n");
        write(&folder.path().join("w/.git"), &format!("gitdir: {}\n", linked.display()));
        assert_eq!(commit(&folder.path().join("w")), Some(newer));
    }

    /// A pipe in the place of a file would be waited for.
    #[test]
    fn a_pipe_in_the_repository_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["HEAD", "packed-refs"] {
            let git = folder.path().join(name).join(".git");
            write(&git.join("HEAD"), "ref: refs/heads/main\n");
            let pipe = git.join(name);
            let _ = fs::remove_file(&pipe); // the other one is not there yet
            assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            assert_eq!(GitQuery::start(git.parent().unwrap()).commit, None);
        }
    }

    /// Runs git in a folder; `None` if git is not installed.
    fn run(folder: &Path, arguments: &[&str]) -> Option<()> {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let status =
            Command::new("git").arg("-C").arg(folder).args(identity).args(arguments).output().ok()?;
        assert!(status.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&status.stderr));
        Some(())
    }

    /// Creates a repository with one committed file; `None` if git is not installed.
    fn repository(root: &Path) -> Option<()> {
        fs::create_dir_all(root).unwrap();
        run(root, &["init", "-q"])?;
        fs::write(root.join("a"), "1").unwrap();
        fs::write(root.join(".gitattributes"), "* filter=evil\n").unwrap();
        run(root, &["add", "."])?;
        run(root, &["commit", "-qm", "a"])
    }

    #[test]
    fn a_change_of_a_tracked_file_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        if repository(folder.path()).is_none() {
            return;
        }
        assert_eq!(GitQuery::start(folder.path()).dirty(), Some(false));
        fs::write(folder.path().join("a"), "longer").unwrap();
        // One query serves all callers.
        let query = GitQuery::start(folder.path());
        assert_eq!([query.clone().dirty(), query.dirty()], [Some(true); 2]);
    }

    #[test]
    fn a_repository_from_elsewhere_runs_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let proof = folder.path().join("proof");
        let command = format!("touch '{}'; cat", proof.display());
        let [monitored, filtered, outer] = ["m", "f", "o"].map(|name| folder.path().join(name));
        if repository(&monitored).is_none() {
            return;
        }
        run(&monitored, &["config", "core.fsmonitor", &command]).unwrap();
        assert_eq!(GitQuery::start(&monitored).dirty(), Some(false));
        repository(&filtered).unwrap();
        run(&filtered, &["config", "filter.evil.clean", &command]).unwrap();
        fs::write(filtered.join("a"), "2").unwrap();
        assert_eq!(GitQuery::start(&filtered).dirty(), None);
        // A folder in a clone that itself looks like a repository.
        repository(&outer).unwrap();
        let bare = outer.join("bare");
        run(folder.path(), &["init", "-q", "--bare", bare.to_str().unwrap()]).unwrap();
        let settings = format!("[core]\nbare = false\nworktree = ..\nfsmonitor = \"{command}\"\n");
        fs::write(bare.join("config"), settings).unwrap();
        assert_eq!(GitQuery::start(&bare).dirty(), Some(false));
        assert!(!proof.exists());
    }
}
