//! Putting a checkpoint into a live model and optimizer, on whatever mesh they are.

use super::Result;
use super::error::CheckpointError;
use super::load::Checkpoint;
use super::manifest::Holds;

use std::collections::BTreeSet;
use unisono_nn::{Optimizer, Parameter};
use unisono_tensor::create::ParameterSpec;
use unisono_tensor::runs::for_each_run;
use unisono_tensor::{Tensor, TensorError};

/// What a restored run should say before it goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Restored {
    /// Sentences that the user must see: optimizer state that was not there or has no use.
    pub warnings: Vec<String>,
}

/// One tensor to fill.
struct Target<'a> {
    kind: Holds,
    name: String,
    spec: &'a ParameterSpec,
    tensor: &'a Tensor,
}

impl Checkpoint {
    /// Puts all parameters and the optimizer's state into their places; padding becomes zero. Everything is checked before
    /// anything is changed.
    ///
    /// A checkpoint without the state that this optimizer keeps (it had another optimizer, or none) is not refused: the state
    /// begins at zero and a warning says so. One that has a part of it is refused.
    ///
    /// # Errors
    /// [`CheckpointError::Misfit`] for tensors that are missing, superfluous or of another shape.
    pub fn restore(&self, parameters: &[Parameter], optimizer: &dyn Optimizer) -> Result<Restored> {
        let parameters_to_fill = self.parameter_targets(parameters);
        let state = optimizer.state();
        let state_to_fill: Vec<Target<'_>> = state
            .iter()
            .map(|s| Target {
                kind: Holds::Optimizer,
                name: format!("{}.{}", s.name, parameters[s.parameter].name),
                spec: &parameters[s.parameter].spec,
                tensor: s.tensor,
            })
            .collect();
        let mut problems = self.problems(Holds::Parameter, &parameters_to_fill);
        let (mut warnings, mut with_state) = (Vec::new(), true);
        let wanted: BTreeSet<&str> = state.iter().map(|s| s.name).collect();
        let held = self.state_names(parameters);
        let listed = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(", ");
        if wanted.is_disjoint(&held) {
            with_state = false;
            let path = self.path.display();
            match (wanted.is_empty(), held.is_empty()) {
                (true, true) => {}
                (false, true) => warnings.push(format!(
                    "{path} holds no optimizer state: {} begin at zero, so the run that goes on is not the one that was \
                     interrupted",
                    listed(&wanted)
                )),
                (true, false) => warnings.push(format!(
                    "{path} holds optimizer state ({}) that this run's optimizer does not keep: it is not used",
                    listed(&held)
                )),
                (false, false) => warnings.push(format!(
                    "{path} holds the state of another optimizer ({}): this run's ({}) begins at zero",
                    listed(&held),
                    listed(&wanted)
                )),
            }
        } else {
            problems.extend(self.problems(Holds::Optimizer, &state_to_fill));
        }
        self.refuse(problems)?;
        fill(self, &parameters_to_fill)?;
        if with_state {
            fill(self, &state_to_fill)?;
        }
        Ok(Restored { warnings })
    }

    /// Puts the parameters alone into their places: for generation and evaluation.
    ///
    /// # Errors
    /// As [`Checkpoint::restore`].
    pub fn restore_parameters(&self, parameters: &[Parameter]) -> Result<()> {
        let targets = self.parameter_targets(parameters);
        self.refuse(self.problems(Holds::Parameter, &targets))?;
        fill(self, &targets)
    }

    fn parameter_targets<'a>(&self, parameters: &'a [Parameter]) -> Vec<Target<'a>> {
        parameters
            .iter()
            .map(|p| Target {
                kind: Holds::Parameter,
                name: p.name.clone(),
                spec: &p.spec,
                tensor: &p.tensor,
            })
            .collect()
    }

    /// The kinds of optimizer state in it: what stands before `.NAME` for a parameter's name.
    fn state_names(&self, parameters: &[Parameter]) -> BTreeSet<&str> {
        let of_optimizer = self.manifest.tensors.iter().filter(|row| row.kind == Holds::Optimizer);
        of_optimizer
            .map(|row| {
                let known = parameters
                    .iter()
                    .filter_map(|p| row.name.strip_suffix(&p.name)?.strip_suffix('.'))
                    .min_by_key(|name| name.len());
                known.unwrap_or_else(|| row.name.split('.').next().unwrap_or(&row.name))
            })
            .collect()
    }

    /// What does not fit, each as a clause.
    fn problems(&self, kind: Holds, targets: &[Target<'_>]) -> Vec<String> {
        let mut problems = Vec::new();
        for target in targets {
            let wanted = target.spec.shape();
            match self.row(kind, &target.name) {
                None => problems.push(format!("it has no tensor `{}` of shape {wanted:?}", target.name)),
                Some(row) if row.shape != wanted => problems.push(format!(
                    "its tensor `{}` has shape {:?}, the model's has {wanted:?}",
                    target.name, row.shape
                )),
                Some(_) => {}
            }
        }
        let names: BTreeSet<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        for row in self.manifest.tensors.iter().filter(|row| row.kind == kind) {
            if !names.contains(row.name.as_str()) {
                problems.push(format!(
                    "its tensor `{}` of shape {:?} has no place in the model",
                    row.name, row.shape
                ));
            }
        }
        problems
    }

    fn refuse(&self, problems: Vec<String>) -> Result<()> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(CheckpointError::Misfit {
            path: self.path.display().to_string(),
            problems,
        })
    }
}

fn fill(checkpoint: &Checkpoint, targets: &[Target<'_>]) -> Result<()> {
    for target in targets {
        let values = checkpoint.values(target.kind, &target.name)?;
        upload_real(target.tensor, target.spec, &values)?;
        // The host holds no more than one tensor beside what the devices have taken over.
        target.tensor.device().runtime().sync().map_err(TensorError::from)?;
    }
    Ok(())
}

/// Copies the values of a tensor without padding to its shards; padding becomes zero.
fn upload_real(tensor: &Tensor, spec: &ParameterSpec, values: &[f32]) -> std::result::Result<(), TensorError> {
    let (real, padded) = (spec.shape(), tensor.shape());
    if real == padded {
        return tensor.upload_global(values);
    }
    let mut whole = vec![0.0; padded.iter().product()];
    for_each_run(&real, &padded, &vec![0; real.len()], &mut |from, at, len| {
        whole[at..at + len].copy_from_slice(&values[from..from + len]);
    });
    tensor.upload_global(&whole)
}
