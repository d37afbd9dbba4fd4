//! The hostile inputs: made by hand, or from every golden event and snapshot.
//!
//! It knows what the inputs of the checks look like, not what must come of them.

use std::path::PathBuf;

use connector_store::base::Digest;
use connector_store::journal::encode_value;
use connector_store::records::SigningKey;

use crate::checks::{PAYLOAD, STAMP, signing_key, token_of};

/// Lengths that no input holds: they reserve gigabytes, or are no length of this machine.
pub const LENGTHS: [u64; 6] = [1 << 30, 1 << 34, 1 << 40, 1 << 62, 1 << 63, u64::MAX];

/// A length as the codec writes it.
pub fn length(length: u64) -> Vec<u8> {
    [&[253], length.to_le_bytes().as_slice()].concat()
}

/// Everything that was ever written, as inputs of the checks of events and of snapshots.
pub fn goldens() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut events, mut snapshots) = (Vec::new(), Vec::new());
    for (kind, file) in (0_u8..).zip(["document", "connector", "auth"]) {
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{file}.txt"));
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, _, number, schema, hex] = words[..] else { panic!("five words: {line}") };
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            let bytes = (0..hex.len()).step_by(2).map(byte);
            if what == "event" {
                let head = [kind, number.parse().unwrap(), schema.parse().unwrap()];
                events.push(head.into_iter().chain(bytes).collect());
            } else {
                snapshots.push([kind].into_iter().chain(bytes).collect());
            }
        }
    }
    (events, snapshots)
}

/// The input cut, with every single bit changed, and with bytes behind it.
pub fn changed(input: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let cut = (0..input.len()).map(|length| input[..length].to_vec());
    let flipped = (0..input.len() * 8).map(|bit| {
        let mut bytes = input.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    });
    let longer = [0, 1, 0xff].map(|byte| [input, &[byte; 9]].concat());
    cut.chain(flipped).chain(longer)
}

/// The input with a hostile length in place of every byte, followed by the rest or by nothing.
pub fn with_lengths(input: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..input.len()).flat_map(move |at| {
        let (head, tail) = (&input[..at], &input[at + 1..]);
        LENGTHS.into_iter().flat_map(move |hostile| {
            let hostile = length(hostile);
            [[head, &hostile].concat(), [head, &hostile, tail].concat()]
        })
    })
}

/// JSON texts that a reader may fall over: deep, wide, long, or said twice.
pub fn json(many: usize) -> Vec<String> {
    let nested = |levels: usize, open: &str, close: &str| {
        format!("{}0{}", open.repeat(levels), close.repeat(levels))
    };
    let members: Vec<String> = (0..many).map(|member| format!("\"{member}\":0")).collect();
    let mut texts = vec![
        format!("{{{}}}", members.join(",")),
        format!("[{}0]", "0,".repeat(many)),
        "1".repeat(many),
        format!("1e{}", "9".repeat(many)),
        format!("\"{}\"", "\\u0000".repeat(many)),
        "[".repeat(many),
        r#""\ud800""#.to_owned(),
        r#""\udc00\ud800""#.to_owned(),
        r#"{"a":0,"a":1,"\u0061":2}"#.to_owned(),
    ];
    for levels in [127, 128, 5_000, many] {
        texts.extend([nested(levels, "[", "]"), nested(levels, "{\"a\":", "}")]);
    }
    texts
}

/// An input of the event check: a trim whose fields are the text.
pub fn trim(fields: &str) -> Vec<u8> {
    let payload = encode_value(&("did:key:zOwner", "caldav", fields, 7_i64)).unwrap();
    [&[0, 2, 1], payload.as_slice()].concat()
}

/// Texts that are no DID, or only nearly one, and two that are.
pub fn dids() -> Vec<Vec<u8>> {
    let ed25519 = SigningKey::ed25519_from_seed([7; 32]).did();
    let p256 = SigningKey::p256_from_scalar([7; 32]).unwrap().did();
    let encode = |codec: &[u8], key: &[u8]| {
        format!("did:key:z{}", bs58::encode([codec, key].concat()).into_string())
    };
    let mut texts = vec![String::new(), "did:key:".to_owned(), "did:key:z".to_owned()];
    for did in [ed25519.as_str(), p256.as_str()] {
        let base58 = &did["did:key:z".len()..];
        texts.extend([
            did.to_owned(),
            format!("did:key:{base58}"),
            format!("did:key:f{base58}"),
            format!("did:key:z1{base58}"),
            format!("{did}#{base58}"),
            format!("{did}?versionId=1"),
            format!("{did}/path"),
            format!("{did} "),
            format!("DID:key:z{base58}"),
        ]);
        texts.extend(["0", "O", "I", "l", "\0", "é"].map(|sign| format!("{did}{sign}")));
    }
    let (x25519, secp256k1, rsa) = ([0xec, 0x01], [0xe7, 0x01], [0x85, 0x24]);
    let (ed25519, p256) = ([0xed, 0x01], [0x80, 0x24]);
    for codec in [x25519, secp256k1, rsa, ed25519, p256] {
        for size in [0, 31, 32, 33, 34, 64, 65, 270] {
            texts.extend([2, 0xff].map(|byte| encode(&codec, &vec![byte; size])));
        }
    }
    // The codec not in its shortest form.
    texts.push(encode(&[0xed, 0x81, 0x00], &[7; 32]));
    // Points of small order, and the order of the field itself for a zero.
    let field_order = [&[0xed], [0xff; 30].as_slice(), &[0x7f]].concat();
    for key in [vec![0; 32], [&[1], [0; 31].as_slice()].concat(), field_order] {
        texts.push(encode(&ed25519, &key));
    }
    texts.push(format!("did:key:z{}", "1".repeat(64)));
    texts.push(format!("did:key:z{}", "2".repeat(10_000_000)));
    texts.into_iter().map(String::into_bytes).chain([b"did:key:z\xff".to_vec()]).collect()
}

/// Pairs of texts that are no stamps, or only nearly, or the first and the last there are.
pub fn hlcs() -> Vec<Vec<u8>> {
    let good = "001767225600000-00000000-node-a";
    let long = format!("999999999999999-ffffffff-{}", "n".repeat(64));
    let mut texts = vec![
        String::new(),
        "-".repeat(1_000_000),
        good.to_owned(),
        long.clone(),
        format!("{long}n"),
        format!("{good}\0"),
        format!("{good} "),
        format!(" {good}"),
        "000000000000000-00000000--".to_owned(),
        "000000000000000-00000000-".to_owned(),
        "+01767225600000-00000000-n".to_owned(),
        "-01767225600000-00000000-n".to_owned(),
        "001767225600000-+0000000-n".to_owned(),
        "001767225600000-0000000A-n".to_owned(),
        "1767225600000-0-n".to_owned(),
        "0001767225600000-00000000-n".to_owned(),
        "00176722560000é-00000000-n".to_owned(),
        "001767225600000-0000000é-n".to_owned(),
        "٠٠١٧٦٧٢٢٥٦٠٠٠٠٠-00000000-n".to_owned(),
        "001767225600000-00000000-nöde".to_owned(),
        format!("001767225600000-00000000-{}", "n".repeat(10_000_000)),
    ];
    texts.extend(texts.clone().iter().map(|text| format!("{good}\n{text}")));
    texts.into_iter().map(String::into_bytes).chain([vec![0xff; 30]]).collect()
}

pub const HEADER: &str = r#"{"alg":"EdDSA","typ":"JWT"}"#;

/// The payload that claims the record of the checks, with further members of its `meta`.
pub fn payload(meta: &str) -> String {
    let (did, digest) = (signing_key().did(), Digest::of(PAYLOAD).to_hex());
    format!(
        r#"{{"claim":{{"hlc":"{STAMP}","key":{{"id":"document-1","owner":"{did}","type":"connector.observation"}},"meta":{{{meta}"version":"{STAMP}"}},"payload":"{digest}"}},"iss":"{did}"}}"#
    )
}

/// Pairs of header and payload that are not taken, although the signature over them is right.
pub fn claims() -> Vec<(String, String)> {
    let header = |members: &str| (HEADER.replace('}', &format!(",{members}}}")), payload(""));
    let changed = |from: &str, to: &str| (HEADER.to_owned(), payload("").replacen(from, to, 1));
    let mut pairs = vec![(HEADER.to_owned(), format!("{}x", payload("")))];
    for alg in ["none", "None", "nOnE", "HS256", "ES256", "EdDSA\\u0000", "eddsa", "RS256", ""] {
        pairs.push((HEADER.replace("EdDSA", alg), payload("")));
    }
    pairs.extend(
        [
            r#""jwk":{"kty":"OKP"}"#,
            r#""jku":"https://example.com/key""#,
            r#""x5u":"https://example.com/key""#,
            r#""kid":"../../dev/null""#,
            r#""kid":"' OR 1=1; --""#,
            r#""kid":null"#,
            r#""crit":["exp"]"#,
            r#""crit":[]"#,
            r#""crit":"x""#,
            r#""b64":false"#,
            r#""alg":"EdDSA""#,
            r#""al\u0067":"EdDSA""#,
            r#""typ":"JWT""#,
        ]
        .map(header),
    );
    let issuer = format!(r#""iss":"{}""#, signing_key().did());
    let hlc = format!(r#""hlc":"{STAMP}""#);
    pairs.extend(
        [
            (issuer.as_str(), format!("{issuer},{issuer}")),
            (&issuer, format!(r#"{issuer},"i\u0073s":"did:web:a""#)),
            (&issuer, format!(r#"{issuer},"exp":9999999999"#)),
            (&issuer, format!(r#"{issuer},"exp":null"#)),
            (&issuer, format!(r#"{issuer},"nbf":"0""#)),
            (&issuer, format!(r#"{issuer},"nbf":1e300"#)),
            (&issuer, format!(r#"{issuer},"iat":-1"#)),
            (&issuer, r#""iss":"did:web:example.com""#.to_owned()),
            (&hlc, format!("{hlc},{hlc}")),
            (&hlc, format!(r#"{hlc},"\u0068lc":"{STAMP}""#)),
            (&hlc, format!(r#"{hlc},"more":1"#)),
            (&hlc, r#""hlc":"1-0-a""#.to_owned()),
        ]
        .map(|(from, to)| changed(from, &to)),
    );
    for meta in [
        r#""a":1,"a":1,"#,
        r#""a":{"b":[{"c":1,"\u0063":2}]},"#,
        r#""a":"\ud800","#,
        r#""a":"\udc00\ud800","#,
        r#""\ud800":1,"#,
        r#""a":"\uffff","#,
        r#""a":9007199254740993,"#,
        r#""a":1e400,"#,
        r#""a":0.1000000000000000055,"#,
        r#""a":01,"#,
        r#""a":NaN,"#,
        r#""version":"x","#,
        "\"a\":\"\u{0}\",",
    ] {
        pairs.push((HEADER.to_owned(), payload(meta)));
    }
    pairs
}

/// Header and payload as an input of the claim check.
pub fn claim(header: &str, payload: &str) -> Vec<u8> {
    [header.as_bytes(), &[0], payload.as_bytes()].concat()
}

/// Other spellings of a token that verifies, and texts that are nearly one.
pub fn tokens() -> Vec<String> {
    let good = token_of(HEADER.as_bytes(), payload("").as_bytes());
    let parts: Vec<&str> = good.split('.').collect();
    let [header, payload, signature] = parts[..] else { panic!("three parts") };
    let zero = "A".repeat(86);
    let mut tokens = vec![
        String::new(),
        "..".to_owned(),
        ".".repeat(1_000_000),
        format!("{header}.{payload}"),
        format!("{good}.{signature}"),
        format!("{good}."),
        format!("{good}.."),
        format!("{header}.{payload}."),
        format!(".{payload}.{signature}"),
        format!("{header}..{signature}"),
        format!("{header}.{payload}.{zero}"),
        format!("{header}.{payload}.{}", &signature[..84]),
        format!("{}.{payload}.{signature}", "A".repeat(1_000_000)),
        good.replace('-', "+").replace('_', "/") + "+",
    ];
    for junk in ["=", "==", "\n", " ", "\t", "\0", "A", "é", "\u{feff}"] {
        tokens.extend([
            format!("{good}{junk}"),
            format!("{junk}{good}"),
            good.replacen('.', &format!("{junk}."), 1),
            good.replacen('.', &format!(".{junk}"), 1),
        ]);
    }
    // The last digit of the signature has four spare bits.
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (rest, last) = good.split_at(good.len() - 1);
    tokens.extend(
        digits.chars().filter(|d| *d != last.chars().next().unwrap()).map(|d| format!("{rest}{d}")),
    );
    tokens
}
