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
    /// Some rows each.
    pending: Vec<Pending>,
    /// Of each row to come, which of those and which row of it.
    rows: Vec<(usize, usize)>,
    /// Elements of a row.
    width: usize,
}

impl Logits {
    /// Waits, and works, until they are there: a row a sequence, each an entry of the vocabulary and then padding.
    ///
    /// # Errors
    /// A failed command.
    pub fn wait(self) -> Result<Vec<f32>> {
        let waited = self.pending.into_iter().map(Pending::wait);
        let mut parts = waited.collect::<std::result::Result<Vec<_>, _>>()?;
        if let ([_], [(0, 0)]) = (&parts[..], &self.rows[..]) {
            return Ok(parts.swap_remove(0));
        }
        let rows = self
            .rows
            .iter()
            .map(|(part, row)| &parts[*part][row * self.width..][..self.width]);
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

    /// Appends tokens to sequences, each an index and its tokens, at most `chunk` of a sequence in one pass. The values to come
    /// are the logits after the last token of each, a row a part; the host does not wait. Sequences in the same slot of different
    /// data-parallel positions go through the model together.
    ///
    /// # Errors
    /// No tokens, a sequence that there is not or that is named twice, more tokens than there is room for, or a failed command.
    pub fn extend(&mut self, parts: &[(usize, &[u32])], chunk: usize) -> Result<Logits> {
        for (place, (index, ids)) in parts.iter().enumerate() {
            self.room(*index, ids.len())?;
            if parts[..place].iter().any(|(other, _)| other == index) {
                return Err(TensorError::Argument {
                    op: "decoder",
                    what: format!("sequence {index} named twice; once is enough"),
                });
            }
        }
        if parts.is_empty() || parts.iter().any(|(_, ids)| ids.is_empty()) {
            return Err(no_tokens());
        }
        let replicas = self.replicas.len();
        let mut slots: Vec<usize> = parts.iter().map(|(index, _)| index / replicas).collect();
        slots.sort_unstable();
        slots.dedup();
        // Features of passes with which sequences end, and of each part in which of them and at which position it does.
        let mut ends = Vec::new();
        let mut rows = vec![(0, 0); parts.len()];
        for slot in slots {
            let mut rest: Vec<&[u32]> = vec![&[]; replicas];
            for (index, ids) in parts.iter().filter(|(index, _)| index / replicas == slot) {
                rest[index % replicas] = ids;
            }
            // No pass goes beyond the end of a sequence, as only each one's last features come out of it.
            while let Some(shortest) = rest.iter().map(|ids| ids.len()).filter(|len| *len > 0).min() {
                let tokens = shortest.min(chunk.max(1));
                let now: Vec<&[u32]> = rest.iter().map(|ids| &ids[..tokens.min(ids.len())]).collect();
                let features = self.pass(slot, &now, tokens)?;
                for (rest, now) in rest.iter_mut().zip(&now) {
                    *rest = &rest[now.len()..];
                }
                let ended = |replica: usize| !now[replica].is_empty() && rest[replica].is_empty();
                if !(0..replicas).any(ended) {
                    continue;
                }
                for ((index, _), row) in parts.iter().zip(&mut rows) {
                    let replica = index % replicas;
                    if index / replicas == slot && ended(replica) {
                        *row = (replica, ends.len());
                    }
                }
                ends.push(features);
            }
        }
        // One product for all of them: the head's weights are read once.
        let features = Tensor::concat(&ends.iter().collect::<Vec<_>>(), 1)?;
        self.logits(&features, rows)
    }

    /// Appends tokens to sequence `index`, as [`Decoder::extend`].
    ///
    /// # Errors
    /// As that.
    pub fn append(&mut self, index: usize, ids: &[u32], chunk: usize) -> Result<Logits> {
        self.extend(&[(index, ids)], chunk)
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
        let rows = (0..ids.len()).map(|index| (index % replicas, index / replicas));
        self.logits(&features, rows.collect())
    }

    /// Appends `tokens` tokens each to the sequences in `slot`, `now` having those of each data-parallel position or none for one
    /// that stays as it is, and gives the features of the last ones.
    fn pass(&mut self, slot: usize, now: &[&[u32]], tokens: usize) -> Result<Tensor> {
        let replicas = self.replicas.len();
        let mut padded = vec![0; replicas * tokens];
        for (row, ids) in padded.chunks_mut(tokens).zip(now) {
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

    /// Features of the last of `tokens` new tokens of each sequence in some slots, data-parallel position by position; `first` says where
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

    /// Asks for the logits of features [slots, 1, width] or [1, ends, width] of each data-parallel position, whole on each of its
    /// devices; `rows` says of each row wanted its position, and which of that position's it is.
    fn logits(&self, features: &Tensor, mut rows: Vec<(usize, usize)>) -> Result<Logits> {
        let logits = self
            .device
            .no_grad(|| self.model.logits(features)?.all_gather("tp", 2, true))?;
        let mut read: Vec<usize> = rows.iter().map(|(replica, _)| *replica).collect();
        read.sort_unstable();
        read.dedup();
        for (replica, _) in &mut rows {
            *replica = read.partition_point(|other| other < replica);
        }
        let later = |replica: &usize| {
            self.device
                .runtime()
                .read_later(logits.buffer(), self.replicas[*replica])
        };
        Ok(Logits {
            pending: read.iter().map(later).collect::<std::result::Result<_, _>>()?,
            rows,
            width: logits.local_shape()[2],
        })
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
