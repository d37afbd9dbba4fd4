//! The host's place on the disk: which files are its own, and that no second process uses them.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use connector_store::{Digest, Holder};
use uuid::Uuid;

use crate::Failure;

/// The parent of the default places.
const DEFAULT_DIR: &str = "sync-host-data";
/// A path that ends so names the store's file, any other the host's directory.
const FILE_EXTENSIONS: [&str; 3] = ["db", "sqlite", "sqlite3"];

/// Where the store's file and the host's own directory are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    store: PathBuf,
    dir: PathBuf,
}

impl Place {
    /// Reads the value of `--store`: a path, or `sqlite:PATH`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = match scheme(text) {
            None => text,
            Some("sqlite") => {
                let path = &text["sqlite:".len()..];
                path.strip_prefix("//").unwrap_or(path)
            }
            Some(other) => {
                return Err(format!("unknown scheme {other}:, expected sqlite:PATH or a path"));
            }
        };
        if path.is_empty() || path.starts_with(':') {
            return Err("expected a path: a host's state must outlive its process".to_owned());
        }
        Ok(Self::at(Path::new(path)))
    }

    /// The default place: each source has its own, so that two sources never meet in one mirror.
    pub fn for_source(source: &Path) -> Self {
        let digest = Digest::of(source.as_os_str().as_encoded_bytes()).to_hex();
        let name = source.file_name().map_or("root".into(), |name| name.to_string_lossy());
        Self::at(&Path::new(DEFAULT_DIR).join(format!("{name}-{}", &digest[..8])))
    }

    fn at(path: &Path) -> Self {
        let names_file = path.is_file()
            || path
                .extension()
                .is_some_and(|end| FILE_EXTENSIONS.iter().any(|known| end == *known));
        if names_file {
            let mut dir = path.as_os_str().to_owned();
            dir.push(".host");
            Self { store: path.to_owned(), dir: dir.into() }
        } else {
            Self { store: path.join("store.db"), dir: path.to_owned() }
        }
    }
}

/// The scheme of a URL; a path with a colon can be written `./a:b`.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(':')?;
    let well_formed = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    well_formed.then_some(scheme)
}

/// The host's directory, locked for as long as this value lives.
#[derive(Debug)]
pub struct Host {
    place: Place,
    _lock: File,
}

impl Host {
    /// Creates the directory where it is missing, and locks it.
    pub fn open(place: &Place) -> Result<Self, Failure> {
        create_dir(&place.dir)?;
        if let Some(parent) = place.store.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            create_dir(parent)?;
        }
        let dir = place.dir.canonicalize()?;
        let lock = File::create(dir.join("host.lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!("another sync_host uses {}", dir.display()).into());
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let store = match (place.store.parent(), place.store.file_name()) {
            (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => {
                parent.canonicalize()?.join(name)
            }
            (_, Some(name)) => Path::new(".").canonicalize()?.join(name),
            _ => return Err("the store's path names no file".into()),
        };
        Ok(Self { place: Place { store, dir }, _lock: lock })
    }

    /// The host's directory.
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// The connector store's database.
    pub fn store_file(&self) -> &Path {
        &self.place.store
    }

    /// The host's own database, with the documents.
    pub fn graph_file(&self) -> PathBuf {
        self.place.dir.join("graph.db")
    }

    /// The owners' keys.
    pub fn keys_dir(&self) -> PathBuf {
        self.place.dir.join("keys")
    }

    /// What must not be mirrored where the host lives inside its own source: everything whose path
    /// is, or begins with, one of these.
    pub fn own_paths(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.place.dir.clone()];
        for suffix in ["", "-wal", "-shm", "-journal", ".lock"] {
            let mut file = self.place.store.clone().into_os_string();
            file.push(suffix);
            paths.push(file.into());
        }
        paths
    }

    /// The name under which this host holds its leases.
    ///
    /// It is kept, and not made anew for each process: nobody else can use it while the directory
    /// is locked, so a lease that is held under it was left by a run that was killed, and the store
    /// gives the same holder a new token at once, without waiting for the old one to expire.
    pub fn holder(&self) -> Result<Holder, Failure> {
        let path = self.place.dir.join("host.id");
        let id = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let text = format!("sync-host-{}", Uuid::new_v4());
                write_new(&path, text.as_bytes())?;
                text
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Holder::new(id.trim())?)
    }
}

fn create_dir(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir)
        .map_err(|error| format!("{} cannot be created: {error}", dir.display()).into())
}

/// Writes a file that is there with all its bytes or not at all, readable by its owner only.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    // The name itself is safe only once its directory is.
    if let Some(parent) = path.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}
