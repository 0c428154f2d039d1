//! The model's side of generation: sequences in caches, and the logits after their last tokens.

use unisono_nn::LanguageModel;
use unisono_runtime::Pending;
use unisono_tensor::ops::attention::KvCache;
use unisono_tensor::{MeshDevice, Result, Tensor, TensorError};

/// Tokens that a cache has room for at first; it doubles from there.
const FIRST_CAPACITY: usize = 64;

/// A model with room for some sequences, each at a length of its own.
///
/// A sequence's logits depend on its tokens alone, bit for bit: not on the other sequences, the mesh, the size of the cache, or
/// whether its tokens came at once or one by one.
///
/// Data-parallel positions share the sequences: of `n` positions, position `r` holds the sequences `r`, `r + n`, `r + 2n`, …
/// in its slots 0, 1, 2, …. All of them run the same commands, so what one has to do the others do as well, on padding where
/// they have no work of their own.
pub struct Decoder<'a> {
    model: &'a dyn LanguageModel,
    device: MeshDevice,
    /// The first device of each data-parallel position.
    replicas: Vec<usize>,
    /// A block each; none before the first tokens.
    caches: Vec<KvCache>,
    /// Most tokens of a sequence.
    capacity: usize,
    /// Tokens that each sequence has in the caches.
    lengths: Vec<usize>,
}

/// Logits on their way to the host.
#[derive(Debug)]
#[must_use]
pub struct Logits {
    /// Data-parallel position by position, rows of its slots.
    pending: Vec<Pending>,
    /// Sequences.
    sequences: usize,
}

impl Logits {
    /// Waits, and works, until they are there: a row a sequence, each an entry of the vocabulary and then padding.
    ///
    /// # Errors
    /// A failed command.
    pub fn wait(self) -> Result<Vec<f32>> {
        let mut parts = self
            .pending
            .into_iter()
            .map(Pending::wait)
            .collect::<std::result::Result<Vec<_>, _>>()?;
        if parts.len() == 1 {
            return Ok(parts.swap_remove(0));
        }
        let replicas = parts.len();
        let row = parts[0].len() / self.sequences.div_ceil(replicas);
        let rows = (0..self.sequences).map(|index| &parts[index % replicas][index / replicas * row..][..row]);
        Ok(rows.collect::<Vec<_>>().concat())
    }
}

impl<'a> Decoder<'a> {
    /// Room for `sequences` of up to `capacity` tokens. Memory is taken as tokens come.
    ///
    /// # Errors
    /// More tokens than the model has positions.
    pub fn new(model: &'a dyn LanguageModel, sequences: usize, capacity: usize) -> Result<Decoder<'a>> {
        let positions = model.max_sequence_length();
        if sequences == 0 || capacity == 0 || capacity > positions {
            return Err(TensorError::Argument {
                op: "decoder",
                what: format!(
                    "room for {sequences} sequences of {capacity} tokens; there must be at least one of each, and this model has \
                     positions for {positions} tokens"
                ),
            });
        }
        let device = model.device().clone();
        let mesh = device.mesh();
        let first_at =
            |position: usize| (0..mesh.num_devices()).find(|device| mesh.position(*device, "dp") == position);
        let replicas: Vec<usize> = (0..mesh.axis_size("dp")).filter_map(first_at).collect();
        let slots = sequences.div_ceil(replicas.len());
        Ok(Decoder {
            model,
            lengths: vec![0; slots * replicas.len()],
            replicas,
            device,
            caches: Vec::new(),
            capacity,
        })
    }

    /// Tokens that each sequence has: as many sequences as were asked for, rounded up to as many at each data-parallel position.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Data-parallel positions, which sequences are dealt out to in turn.
    pub fn replicas(&self) -> usize {
        self.replicas.len()
    }

    /// Tokens of a sequence that memory has been taken for so far.
    pub fn capacity(&self) -> usize {
        self.caches.first().map_or(0, KvCache::capacity)
    }

    /// Forgets all but the first `len` tokens of sequence `index`.
    pub fn truncate(&mut self, index: usize, len: usize) {
        if let Some(length) = self.lengths.get_mut(index) {
            *length = len.min(*length);
        }
    }

    /// Moves the sequences of slot `from`, those of all data-parallel positions, to slot `to`, whose own are forgotten.
    ///
    /// # Errors
    /// Slots that there are not.
    pub fn relocate(&mut self, from: usize, to: usize) -> Result<()> {
        let replicas = self.replicas.len();
        let slots = self.lengths.len() / replicas;
        if from.max(to) >= slots {
            return Err(TensorError::Argument {
                op: "decoder",
                what: format!("slot {from} moved to slot {to} of {slots}; slots count from 0"),
            });
        }
        if from == to {
            return Ok(());
        }
        let moved = self.lengths[from * replicas..][..replicas].to_vec();
        let tokens = moved.iter().copied().max().unwrap_or(0);
        for cache in &self.caches {
            cache.copy_sequence(from, to, tokens)?;
        }
        self.lengths[to * replicas..][..replicas].copy_from_slice(&moved);
        self.lengths[from * replicas..][..replicas].fill(0);
        Ok(())
    }

    /// Appends tokens to sequences, each an index and its tokens, at most `chunk` of a sequence in one pass. Sequences in the
    /// same slot of different data-parallel positions go through the model together.
    ///
    /// # Errors
    /// A sequence that there is not or that is named twice, more tokens than there is room for, or a failed command.
    pub fn extend(&mut self, parts: &[(usize, &[u32])], chunk: usize) -> Result<()> {
        for (place, (index, ids)) in parts.iter().enumerate() {
            self.room(*index, ids.len())?;
            if parts[..place].iter().any(|(other, _)| other == index) {
                return Err(TensorError::Argument {
                    op: "decoder",
                    what: format!("sequence {index} named twice; once is enough"),
                });
            }
        }
        let replicas = self.replicas.len();
        let mut slots: Vec<usize> = parts.iter().map(|(index, _)| index / replicas).collect();
        slots.sort_unstable();
        slots.dedup();
        for slot in slots {
            let mut rest: Vec<&[u32]> = vec![&[]; replicas];
            for (index, ids) in parts.iter().filter(|(index, _)| index / replicas == slot) {
                rest[index % replicas] = ids;
            }
            while rest.iter().any(|ids| !ids.is_empty()) {
                let cut = |ids: &&'_ [u32]| ids.len().min(chunk.max(1));
                let now: Vec<&[u32]> = rest.iter().map(|ids| &ids[..cut(ids)]).collect();
                self.pass(slot, &now)?;
                for (rest, now) in rest.iter_mut().zip(now) {
                    *rest = &rest[now.len()..];
                }
            }
        }
        Ok(())
    }

    /// Appends tokens to sequence `index`, at most `chunk` of them in one pass. The values to come are the logits after the
    /// last, one an entry of the vocabulary and then padding; the host does not wait.
    ///
    /// # Errors
    /// No tokens, more than there is room for, or a failed command.
    pub fn append(&mut self, index: usize, ids: &[u32], chunk: usize) -> Result<Logits> {
        self.room(index, ids.len())?;
        let Some((last, before)) = ids.split_last() else {
            return Err(no_tokens());
        };
        self.extend(&[(index, before)], chunk)?;
        let replicas = self.replicas.len();
        let mut now: Vec<&[u32]> = vec![&[]; replicas];
        now[index % replicas] = std::slice::from_ref(last);
        let features = self.pass(index / replicas, &now)?;
        let logits = self.logits(&features)?;
        Ok(Logits {
            pending: vec![self.read(&logits, index % replicas)?],
            sequences: 1,
        })
    }

    /// Appends one token to each of the first sequences, `None` for one that is to stay as it is. The values to come are the
    /// logits after each, a row a sequence.
    ///
    /// # Errors
    /// No tokens, more than there are sequences, one for a sequence that is full, or a failed command.
    pub fn step(&mut self, ids: &[Option<u32>]) -> Result<Logits> {
        if ids.is_empty() {
            return Err(no_tokens());
        }
        self.room(ids.len() - 1, 0)?;
        for (index, _) in ids.iter().enumerate().filter(|(_, id)| id.is_some()) {
            self.room(index, 1)?;
        }
        let replicas = self.replicas.len();
        let slots = ids.len().div_ceil(replicas);
        let sequence = |row: usize| row % slots * replicas + row / slots;
        let tokens: Vec<u32> = (0..slots * replicas)
            .map(|row| ids.get(sequence(row)).copied().flatten().unwrap_or(0))
            .collect();
        let stepping = |(index, id): (usize, &Option<u32>)| id.map(|_| self.lengths[index] + 1);
        let longest = ids.iter().enumerate().filter_map(stepping).max();
        self.reserve(longest.unwrap_or(1))?;
        // A sequence that stays as it is works on a token behind its last one, which the next real one overwrites.
        let first: Vec<usize> = (0..slots * replicas).map(|row| self.lengths[sequence(row)]).collect();
        let features = self.forward(0..slots, &tokens, &first, 1)?;
        for (len, _) in self.lengths.iter_mut().zip(ids).filter(|(_, id)| id.is_some()) {
            *len += 1;
        }
        let logits = self.logits(&features)?;
        let read = |replica| self.read(&logits, replica);
        Ok(Logits {
            pending: (0..replicas.min(ids.len())).map(read).collect::<Result<_>>()?,
            sequences: ids.len(),
        })
    }

    /// Waits until all tokens so far are in the caches.
    ///
    /// # Errors
    /// A failed command.
    pub fn sync(&self) -> Result<()> {
        Ok(self.device.runtime().sync()?)
    }

    /// Appends tokens to the sequences in `slot`, `now` having those of each data-parallel position, and gives their features.
    fn pass(&mut self, slot: usize, now: &[&[u32]]) -> Result<Tensor> {
        let replicas = self.replicas.len();
        let tokens = now.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let mut padded = vec![0; replicas * tokens];
        for (row, ids) in padded.chunks_mut(tokens.max(1)).zip(now) {
            row[..ids.len()].copy_from_slice(ids);
        }
        let first = self.lengths[slot * replicas..][..replicas].to_vec();
        let ends = first.iter().zip(now).filter(|(_, ids)| !ids.is_empty());
        self.reserve(ends.map(|(first, ids)| first + ids.len()).max().unwrap_or(1))?;
        let features = self.forward(slot..slot + 1, &padded, &first, tokens)?;
        for (len, ids) in self.lengths[slot * replicas..].iter_mut().zip(now) {
            *len += ids.len();
        }
        Ok(features)
    }

    /// Features of `tokens` new tokens of each sequence in some slots, data-parallel position by position; `first` says where
    /// each sequence's begin.
    fn forward(&self, slots: std::ops::Range<usize>, ids: &[u32], first: &[usize], tokens: usize) -> Result<Tensor> {
        let last = self.model.max_sequence_length() - 1;
        let positions: Vec<u32> = first
            .iter()
            .flat_map(|first| (0..tokens).map(move |t| (first + t).min(last) as u32))
            .collect();
        let shape = [first.len(), tokens];
        self.device.no_grad(|| {
            let caches = self
                .caches
                .iter()
                .map(|cache| cache.sequences(slots.clone()))
                .collect::<Result<Vec<_>>>()?;
            let ids = self.device.batch_u32(ids, &shape)?;
            let positions = self.device.batch_u32(&positions, &shape)?;
            self.model.forward_cached(&ids, &caches, &positions)
        })
    }

    /// Logits after one token of each sequence, whole on each device of its data-parallel position.
    fn logits(&self, features: &Tensor) -> Result<Tensor> {
        self.device
            .no_grad(|| self.model.logits(features)?.all_gather("tp", 2, true))
    }

    /// Asks for the logits of a data-parallel position.
    fn read(&self, logits: &Tensor, replica: usize) -> Result<Pending> {
        let device = self.replicas[replica];
        Ok(self.device.runtime().read_later(logits.buffer(), device)?)
    }

    /// Takes memory for sequences of `tokens` tokens: twice as much as before, but never more than can be asked for.
    fn reserve(&mut self, tokens: usize) -> Result<()> {
        let now = self.capacity();
        if tokens <= now {
            return Ok(());
        }
        let capacity = tokens.max(2 * now).max(FIRST_CAPACITY).min(self.capacity);
        if self.caches.is_empty() {
            let slots = self.lengths.len() / self.replicas.len();
            self.caches = self.model.caches(slots, capacity)?;
            return Ok(());
        }
        let used = self.lengths.iter().copied().max().unwrap_or(0);
        for cache in &mut self.caches {
            // One block at a time: the old memory of one goes before the next one's is taken.
            *cache = cache.with_capacity(capacity, used)?;
        }
        Ok(())
    }

    /// Fails where sequence `index` has no room for `tokens` more.
    fn room(&self, index: usize, tokens: usize) -> Result<()> {
        let what = match self.lengths.get(index) {
            None => format!("sequence {index} of {}; sequences count from 0", self.lengths.len()),
            Some(len) if len + tokens > self.capacity => format!(
                "{tokens} tokens behind the {len} of sequence {index}; there is room for {}",
                self.capacity
            ),
            Some(_) => return Ok(()),
        };
        Err(TensorError::Argument { op: "decoder", what })
    }
}

fn no_tokens() -> TensorError {
    TensorError::Argument {
        op: "decoder",
        what: "no tokens to append; at least one is needed".into(),
    }
}
