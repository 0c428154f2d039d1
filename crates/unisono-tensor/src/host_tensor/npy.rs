//! NumPy's file format `.npy`: a header that is a Python dictionary, then the values.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>, versions 1.0 to 3.0, little-endian, C order.
//! NumPy itself has no bf16: such arrays are two opaque bytes an element (`<V2`), which is how the package `ml_dtypes` saves its
//! `bfloat16`; `x.view(ml_dtypes.bfloat16)` reads them.

use super::{HostTensor, refuse};
use crate::Dtype;
use crate::Result;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header that is read; NumPy's own limit is 10,000 unless a file is trusted.
const MAX_HEADER: usize = 65_535;
/// Most dims that NumPy has.
const MAX_DIMS: usize = 64;
const OP: &str = "npy";

impl HostTensor {
    /// The array in a `.npy` file.
    ///
    /// # Errors
    /// No `.npy` file, a version other than 1 to 3, a header that is damaged or longer than 65,535 bytes, Fortran order,
    /// big-endian values or a kind of number that is not held here, or another number of bytes than the shape takes.
    pub fn from_npy(file: &[u8]) -> Result<HostTensor> {
        let (header, data) = split(file)?;
        let header = Header::parse(header)?;
        let dtype = dtype_of(&header.descr)?;
        if header.fortran && header.shape.len() > 1 {
            return Err(refuse(
                OP,
                format!(
                    "the array {:?} is in Fortran order (first dim fastest); save numpy.ascontiguousarray(x) instead",
                    header.shape
                ),
            ));
        }
        let expected = super::num_elements(OP, dtype, &header.shape)? * dtype.bytes();
        if expected != data.len() {
            return Err(refuse(
                OP,
                format!(
                    "the header says {:?} of {}, which takes {expected} bytes, but {} follow it",
                    header.shape,
                    dtype.name(),
                    data.len()
                ),
            ));
        }
        HostTensor::from_bytes(dtype, &header.shape, data)
    }

    /// The array as a `.npy` file of version 1.0.
    ///
    /// # Errors
    /// More than 64 dims, the most that NumPy has.
    pub fn to_npy(&self) -> Result<Vec<u8>> {
        if self.rank() > MAX_DIMS {
            return Err(refuse(OP, format!("{} dims; NumPy has up to {MAX_DIMS}", self.rank())));
        }
        let sizes: Vec<String> = self.shape().iter().map(usize::to_string).collect();
        let shape = match sizes.as_slice() {
            [one] => format!("({one},)"),
            _ => format!("({})", sizes.join(", ")),
        };
        let descr = match self.dtype() {
            Dtype::F32 => "<f4",
            Dtype::Bf16 => "<V2",
            Dtype::U32 => "<u4",
            Dtype::I32 => "<i4",
            Dtype::U8 => "|u1",
        };
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        // The values begin at a multiple of 64 bytes, and the header's last character is a line's end.
        let before = MAGIC.len() + 4;
        let end = (before + header.len() + 1).next_multiple_of(64);
        header += &" ".repeat(end - before - header.len() - 1);
        header.push('\n');
        let mut file = Vec::with_capacity(end + self.bytes().len());
        file.extend_from_slice(MAGIC);
        file.extend_from_slice(&[1, 0]);
        file.extend_from_slice(&(header.len() as u16).to_le_bytes()); // at most 64 sizes of 20 digits
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(self.bytes());
        Ok(file)
    }
}

/// Header and values of a file.
fn split(file: &[u8]) -> Result<(&[u8], &[u8])> {
    let cut = || {
        refuse(
            OP,
            format!("the file ends inside its header, after {} bytes", file.len()),
        )
    };
    let Some(rest) = file.strip_prefix(MAGIC) else {
        return Err(refuse(
            OP,
            "the file does not begin as a .npy file does (0x93, \"NUMPY\")".into(),
        ));
    };
    let ([major, _minor], rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
    let (length, rest) = match major {
        1 => {
            let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        2 | 3 => {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        other => {
            return Err(refuse(
                OP,
                format!("the file has format version {other}; 1, 2 and 3 are known"),
            ));
        }
    };
    if length > MAX_HEADER {
        return Err(refuse(
            OP,
            format!("the header claims {length} bytes; up to {MAX_HEADER} are read"),
        ));
    }
    rest.split_at_checked(length).ok_or_else(cut)
}

fn dtype_of(descr: &str) -> Result<Dtype> {
    Ok(match descr {
        "<f4" => Dtype::F32,
        "|V2" | "<V2" => Dtype::Bf16,
        "<u4" => Dtype::U32,
        "<i4" => Dtype::I32,
        "|u1" | "<u1" | "u1" => Dtype::U8,
        _ if descr.starts_with('>') => {
            return Err(refuse(
                OP,
                format!("values of kind '{descr}' are big-endian; save x.astype(x.dtype.newbyteorder('<')) instead"),
            ));
        }
        _ => {
            return Err(refuse(
                OP,
                format!(
                    "values of kind '{descr}' are not held here; save them as float32 ('<f4'), bfloat16 ('<V2'), uint32 \
                     ('<u4'), int32 ('<i4') or uint8 ('|u1'), for example x.astype('float32')"
                ),
            ));
        }
    })
}

/// The header's three entries.
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads the dictionary; its keys may come in any order.
    fn parse(text: &[u8]) -> Result<Header> {
        let mut reader = Reader { text, at: 0 };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        reader.expect(b'{')?;
        while !reader.take(b'}') {
            let key = reader.string()?;
            reader.expect(b':')?;
            let fresh = match key.as_str() {
                "descr" => descr.replace(reader.string()?).is_none(),
                "fortran_order" => fortran.replace(reader.boolean()?).is_none(),
                "shape" => shape.replace(reader.tuple()?).is_none(),
                _ => return Err(reader.wrong(&format!("the key {key:?}, which the format does not have"))),
            };
            if !fresh {
                return Err(reader.wrong(&format!("the key {key:?} twice")));
            }
            if !reader.take(b',') {
                reader.expect(b'}')?;
                break;
            }
        }
        reader.blanks();
        if reader.at < text.len() {
            return Err(reader.wrong("more after the dictionary's end"));
        }
        match (descr, fortran, shape) {
            (Some(descr), Some(fortran), Some(shape)) => Ok(Header { descr, fortran, shape }),
            _ => Err(refuse(
                OP,
                "the header lacks one of its keys 'descr', 'fortran_order' and 'shape'".into(),
            )),
        }
    }
}

/// The little of Python's syntax that headers have.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn blanks(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.blanks();
        let there = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        match self.take(byte) {
            true => Ok(()),
            false => Err(self.wrong(&format!("no '{}'", char::from(byte)))),
        }
    }

    fn string(&mut self) -> Result<String> {
        self.blanks();
        let quote = match self.text.get(self.at) {
            Some(quote @ (b'\'' | b'"')) => *quote,
            // A structured kind is a list.
            Some(b'[') => {
                return Err(refuse(
                    OP,
                    "the values are records of several fields; save one field".into(),
                ));
            }
            _ => return Err(self.wrong("no string")),
        };
        let rest = &self.text[self.at + 1..];
        let Some(len) = rest.iter().position(|byte| *byte == quote) else {
            return Err(self.wrong("a string without an end"));
        };
        self.at += len + 2;
        Ok(String::from_utf8_lossy(&rest[..len]).into_owned())
    }

    fn boolean(&mut self) -> Result<bool> {
        self.blanks();
        for (word, value) in [("True", true), ("False", false)] {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.wrong("neither True nor False"))
    }

    fn tuple(&mut self) -> Result<Vec<usize>> {
        let mut sizes = Vec::new();
        self.expect(b'(')?;
        while !self.take(b')') {
            self.blanks();
            let digits = self.text[self.at..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            let size = std::str::from_utf8(&self.text[self.at..self.at + digits]).ok();
            let Some(size) = size.and_then(|size| size.parse().ok()) else {
                return Err(self.wrong("no size"));
            };
            self.at += digits;
            // Files of Python 2 write long integers so.
            self.take(b'L');
            sizes.push(size);
            if sizes.len() > MAX_DIMS {
                return Err(self.wrong(&format!("more than {MAX_DIMS} dims")));
            }
            if !self.take(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(sizes)
    }

    fn wrong(&self, found: &str) -> crate::TensorError {
        refuse(OP, format!("the header is damaged: {found} at its byte {}", self.at))
    }
}
