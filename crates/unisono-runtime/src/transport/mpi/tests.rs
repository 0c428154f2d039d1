use super::*;

fn world(rank: usize, size: usize, source: Source) -> World {
    World {
        rank,
        size,
        source,
        ..World::alone()
    }
}

/// Launchers under which MPI would see a single process are refused before it is looked for.
#[test]
fn worlds_without_a_launcher_for_mpi_are_refused() {
    let environment = |names: &[&str]| names.iter().map(|name| (name.to_string(), "1".to_string())).collect();
    for (source, names, words) in [
        (Source::Torch, &["RANK"][..], "use unisono run"),
        (Source::Torch, &["RANK", "PMIX_RANK"], "use unisono run"),
        (Source::Slurm, &["SLURM_PROCID"], "use srun --mpi=pmix"),
        (Source::Flags, &[], "start the processes with unisono run"),
    ] {
        let error = Mpi::open(&environment(names), &world(1, 4, source)).expect_err("MPI cannot see them");
        let error = error.to_string();
        assert!(
            error.contains("this process of 4, and MPI would see a single one"),
            "{error}"
        );
        assert!(error.contains(words), "{error}");
    }
    for (source, names) in [
        (Source::Slurm, &["PMIX_RANK"][..]),
        (Source::Slurm, &["PMI_FD"]),
        (Source::OpenMpi, &[]),
        (Source::Pmi, &[]),
    ] {
        assert_eq!(Mpi::within_reach(&environment(names), &world(1, 4, source)), Ok(()));
    }
    assert_eq!(
        Mpi::within_reach(&environment(&[]), &world(0, 1, Source::Torch)),
        Ok(())
    );
}

#[test]
fn a_library_that_is_not_there_is_told() {
    let environment = BTreeMap::from([("UNISONO_MPI".to_string(), "no-such-library.so".to_string())]);
    for error in [
        Mpi::found(&environment).expect_err("there is none"),
        Mpi::open(&environment, &World::alone()).expect_err("there is none"),
    ] {
        assert!(matches!(error, TransportError::Absent(_)), "{error:?}");
        let error = error.to_string();
        assert!(error.contains("UNISONO_MPI names no-such-library.so"), "{error}");
        assert!(error.contains("apt-get install openmpi-bin, or mpich"), "{error}");
    }
}
