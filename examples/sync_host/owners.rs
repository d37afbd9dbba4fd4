//! The owners that are mirrored for: `owner-1` … `owner-N`, each with a key and the `did:key` of it.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use connector_store::records::{RecordSigner, SigningKey};
use connector_store::{Digest, OwnerDid};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::Failure;
use crate::host::write_new;

/// One owner.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The name on the command line.
    pub name: String,
    /// The name everywhere else.
    pub did: OwnerDid,
    /// Signs with the owner's key.
    pub signer: Arc<RecordSigner>,
}

/// The first `count` owners. A key that is missing is made, and then kept for ever: the owner's
/// documents are named after it.
pub fn open(dir: &Path, count: u32) -> Result<Vec<Owner>, Failure> {
    fs::create_dir_all(dir)?;
    (1..=count)
        .map(|number| {
            let name = format!("owner-{number}");
            let seed = seed(&dir.join(format!("{name}.seed")))?;
            let key = SigningKey::ed25519_from_seed(*seed);
            let did = OwnerDid::try_from(&key.did())?;
            Ok(Owner { name, did, signer: Arc::new(RecordSigner::did_key(key)) })
        })
        .collect()
}

fn seed(path: &Path) -> Result<Zeroizing<[u8; 32]>, Failure> {
    match fs::read(path).map(Zeroizing::new) {
        Ok(bytes) => {
            let seed = <[u8; 32]>::try_from(bytes.as_slice());
            let seed = seed.map_err(|_| format!("{} is no key: not 32 bytes", path.display()))?;
            Ok(Zeroizing::new(seed))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let seed = Zeroizing::new(random_seed());
            write_new(path, seed.as_slice())?;
            Ok(seed)
        }
        Err(error) => Err(format!("{} cannot be read: {error}", path.display()).into()),
    }
}

/// Three random UUIDs hold 366 random bits, which the digest brings down to 256.
fn random_seed() -> [u8; 32] {
    let parts = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()];
    *Digest::of_parts(&[parts[0].as_bytes(), parts[1].as_bytes(), parts[2].as_bytes()]).as_bytes()
}
