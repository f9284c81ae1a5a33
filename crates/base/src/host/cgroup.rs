//! The control group of this process.

use std::path::{Path, PathBuf};

/// The folders of the cgroup and its ancestors (cgroup v2, or v1's tree of `controller`). In a container the
/// group's own path may not be visible; the root of the tree then stands for it.
pub(super) fn folders(groups: &str, mount: &Path, controller: &str) -> Vec<PathBuf> {
    let folders = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let tree = match parts.next()? {
            "" => mount.to_owned(),
            list if list.split(',').any(|name| name == controller) => mount.join(controller),
            _ => return None,
        };
        let group = tree.join(parts.next()?.trim_start_matches('/'));
        let folders = group.ancestors().take_while(|folder| folder.starts_with(&tree));
        Some(folders.map(Path::to_owned).collect::<Vec<_>>())
    });
    folders.flatten().collect()
}
