use super::*;

fn environment(text: &str) -> Environment {
    let pairs = text
        .split_whitespace()
        .map(|pair| pair.split_once('=').expect("NAME=VALUE"));
    pairs
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

const NONE: Given = Given { rank: None, size: None };

#[test]
fn launchers_are_understood() {
    use Source::{Alone, OpenMpi, Pmi, Slurm, Torch};
    let rows = [
        ("", (0, 1), (None, None), Alone),
        ("HOME=/ OMPI_MCA_btl=tcp", (0, 1), (None, None), Alone),
        (
            "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=2",
            (2, 4),
            (Some(0), Some(2)),
            OpenMpi,
        ),
        (
            "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
            (3, 4),
            (Some(1), Some(2)),
            Pmi,
        ),
        (
            "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=a",
            (5, 8),
            (Some(1), Some(4)),
            Torch,
        ),
        ("RANK=0 WORLD_SIZE=1", (0, 1), (None, None), Torch),
        // srun; the step's tasks count, not the job's.
        (
            "SLURM_PROCID=6 SLURM_NTASKS=9 SLURM_STEP_NUM_TASKS=7 SLURM_STEP_ID=0 SLURM_LOCALID=0 SLURM_NODEID=3 \
             SLURM_STEP_TASKS_PER_NODE=2(x3),1",
            (6, 7),
            (Some(0), Some(1)),
            Slurm,
        ),
        (
            "SLURM_PROCID=1 SLURM_NPROCS=2 SLURM_STEPID=3",
            (1, 2),
            (None, None),
            Slurm,
        ),
        // srun with a plugin.
        (
            "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_LOCALID=1 PMIX_RANK=1",
            (1, 2),
            (Some(1), None),
            Slurm,
        ),
        (
            "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 PMI_RANK=1 PMI_SIZE=2",
            (1, 2),
            (None, None),
            Pmi,
        ),
        // The script of a job, a shell of salloc in two forms: one process, whatever the number of tasks.
        (
            "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7",
            (0, 1),
            (None, None),
            Alone,
        ),
        (
            "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=batch",
            (0, 1),
            (None, None),
            Alone,
        ),
        (
            "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=4294967290",
            (0, 1),
            (None, None),
            Alone,
        ),
        ("SLURM_NTASKS=4 SLURM_STEP_ID=0", (0, 1), (None, None), Alone),
        // mpirun inside of a job: what its daemon had from Slurm says nothing about its processes.
        (
            "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8",
            (5, 8),
            (None, None),
            OpenMpi,
        ),
        // srun that starts one torchrun a host, with and without a plugin.
        (
            "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 PMIX_RANK=1 RANK=5 WORLD_SIZE=8 TORCHELASTIC_RUN_ID=none",
            (5, 8),
            (None, None),
            Torch,
        ),
        // A script that sets torch's names from those of the launcher.
        (
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 RANK=1 WORLD_SIZE=2",
            (1, 2),
            (None, None),
            OpenMpi,
        ),
    ];
    for (text, (rank, size), (local_rank, local_size), source) in rows {
        let expected = World {
            rank,
            size,
            local_rank,
            local_size,
            source,
        };
        assert_eq!(World::find(NONE, &environment(text)), Ok(expected), "{text}");
    }
}

#[test]
fn flags_come_first_and_must_agree() {
    let find = |rank, size, text| World::find(Given { rank, size }, &environment(text));
    let world = find(Some(1), Some(2), "").expect("flags suffice");
    assert_eq!((world.rank, world.size, world.source), (1, 2, Source::Flags));
    let world = find(None, Some(1), "").expect("one process needs no number");
    assert_eq!((world.rank, world.size), (0, 1));
    let launched = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2";
    for (rank, size) in [(Some(1), None), (None, Some(2)), (Some(1), Some(2))] {
        let world = find(rank, size, launched).expect("they agree");
        assert_eq!((world.rank, world.size, world.source), (1, 2, Source::OpenMpi));
    }
    let world = find(None, Some(3), "PMIX_RANK=2").expect("the flag completes it");
    assert_eq!((world.rank, world.size, world.source), (2, 3, Source::Pmix));
    for (rank, size, text, words) in [
        (Some(0), None, launched, "--rank 0 contradicts OMPI_COMM_WORLD_RANK=1"),
        (
            None,
            Some(4),
            launched,
            "--world-size 4 contradicts OMPI_COMM_WORLD_SIZE=2",
        ),
        (Some(0), Some(2), "PMIX_RANK=1", "--rank 0 contradicts PMIX_RANK=1"),
        (
            Some(0),
            None,
            "",
            "--rank 0 is given, and nothing tells the number of processes; add --world-size",
        ),
        (
            None,
            Some(2),
            "",
            "--world-size 2 is given, and nothing tells the number of this process; add --rank",
        ),
        (
            Some(2),
            Some(2),
            "",
            "rank 2 of a world of 2: ranks are numbers from 0 to 1",
        ),
        (
            Some(0),
            Some(0),
            "",
            "rank 0 of a world of 0: there is at least one process",
        ),
        (
            None,
            None,
            "PMIX_RANK=1",
            "PMIX_RANK=1 is given, and nothing tells the number of processes; add --world-size",
        ),
    ] {
        let error = find(rank, size, text).expect_err(words).to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    for (text, words) in [
        ("RANK=1", "RANK=1 is set, and WORLD_SIZE is not; set both or neither"),
        (
            "WORLD_SIZE=4",
            "WORLD_SIZE=4 is set, and RANK is not; set both or neither",
        ),
        (
            "PMI_RANK=1",
            "PMI_RANK=1 is set, and PMI_SIZE is not; set both or neither",
        ),
        (
            "OMPI_COMM_WORLD_SIZE=1",
            "OMPI_COMM_WORLD_SIZE=1 is set, and OMPI_COMM_WORLD_RANK is not",
        ),
        (
            "SLURM_PROCID=1 SLURM_STEP_ID=0",
            "SLURM_PROCID=1 is set, and SLURM_STEP_NUM_TASKS is not",
        ),
        (
            "RANK=one WORLD_SIZE=2",
            "RANK is \"one\"; a whole number from 0 was expected",
        ),
        (
            "RANK=-1 WORLD_SIZE=2",
            "RANK is \"-1\"; a whole number from 0 was expected",
        ),
        ("RANK= WORLD_SIZE=2", "RANK is \"\"; a whole number from 0 was expected"),
        (
            "RANK=0 WORLD_SIZE=99999999999999999999",
            "WORLD_SIZE is \"99999999999999999999\"; a whole",
        ),
        (
            "RANK=0 WORLD_SIZE=0",
            "RANK=0 and WORLD_SIZE=0: there is at least one process",
        ),
        ("RANK=1 WORLD_SIZE=1", "RANK=1 and WORLD_SIZE=1: the only rank is 0"),
        (
            "PMI_RANK=4 PMI_SIZE=4",
            "PMI_RANK=4 and PMI_SIZE=4: ranks are numbers from 0 to 3",
        ),
        (
            "RANK=1 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2",
            "LOCAL_RANK=2 and LOCAL_WORLD_SIZE=2: ranks are numbers from 0 to 1",
        ),
        (
            "RANK=1 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=8",
            "LOCAL_WORLD_SIZE=8 contradicts WORLD_SIZE=4",
        ),
        // One mpirun inside another, and torchrun inside of mpirun.
        (
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMI_RANK=0 PMI_SIZE=4",
            "OMPI_COMM_WORLD_SIZE=1 contradicts PMI_SIZE=4",
        ),
        (
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 PMI_RANK=3 PMI_SIZE=4",
            "OMPI_COMM_WORLD_RANK=0 contradicts PMI_RANK=3",
        ),
        (
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 RANK=0 WORLD_SIZE=8 TORCHELASTIC_RUN_ID=none",
            "OMPI_COMM_WORLD_SIZE=2 contradicts WORLD_SIZE=8",
        ),
        (
            "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 RANK=0 WORLD_SIZE=2",
            "SLURM_PROCID=1 contradicts RANK=0",
        ),
        (
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=1",
            "OMPI_COMM_WORLD_RANK=0 contradicts PMIX_RANK=1",
        ),
        (
            "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 PMIX_RANK=0",
            "SLURM_PROCID=1 contradicts PMIX_RANK=0",
        ),
    ] {
        let error = World::find(NONE, &environment(text)).expect_err(text);
        assert!(matches!(error, TransportError::World(_)), "{error:?}");
        assert!(error.to_string().starts_with(words), "{text}: {error}");
    }
}

#[test]
fn lists_of_tasks_are_read() {
    for (list, counts) in [
        ("4", vec![Some(4), None]),
        ("2(x3),1", vec![Some(2), Some(2), Some(2), Some(1), None]),
        ("1,3(x2)", vec![Some(1), Some(3), Some(3), None]),
        ("2(x", vec![None, None]),
        ("", vec![None, None]),
    ] {
        for (node, count) in counts.into_iter().enumerate() {
            assert_eq!(tasks_of_node(list, node), count, "{list} {node}");
        }
    }
}
