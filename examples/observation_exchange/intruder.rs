//! Records that no host may take: whoever has an account's address can send one.

use connector_store::records::{RecordSigner, SignedRecord, SigningKey};
use connector_store::{DocumentId, Hlc, OwnerDid};

use crate::Failure;

/// A moment in the year 2200. A stamp of then would win over all honest ones for ages.
const FAR_FUTURE: &str = "007258118400000-00000000-intruder";

/// One record of each kind, of the document. `wall_ms` is the time of now.
pub fn records(
    owner: &OwnerDid,
    document: &DocumentId,
    device: &RecordSigner,
    wall_ms: i64,
) -> Result<Vec<SignedRecord>, Failure> {
    let stamp = |text: &str| Hlc::parse(text).ok_or("not a stamp");
    let (now, future) = (stamp(&format!("{wall_ms:015}-00000000-intruder"))?, stamp(FAR_FUTURE)?);

    // The signature is right, but nobody has let this key sign for the owner.
    let stranger = RecordSigner::did_key(SigningKey::ed25519_from_seed([0xff; 32]));
    let strange = stranger.sign(owner, document, &now, &now, Some(b"a stranger's"))?;

    // The token is genuine, the value beside it is not what was signed.
    let mut forged = device.sign(owner, document, &now, &now, Some(b"genuine"))?;
    forged.payload = Some(b"forged".as_slice().into());

    // All is genuine, but the clock of the device that signed it is wrong.
    let early = device.sign(owner, document, &future, &future, Some(b"from the future"))?;

    Ok(vec![strange, forged, early])
}
