//! Rankfiles and hostfiles: every form parsed alike or refused with its line.

use crate::common::{Sandbox, bound, golden};

#[test]
fn forms() {
    let mut text = String::new();
    for (option, file) in [
        ("--rankfile", "rank 0=a slot=0\nrank 1=b slot=1\n"),
        (
            "--rankfile",
            "rank 1 = b\tslots = 0-3   # the second\n\n  # alone\nrank 0= a slot =1:*  \n",
        ),
        (
            "--rankfile",
            "rank 0=me@a.example slot=0\nrank 1=10.0.0.1 slot=\"0,1\"\n",
        ),
        ("--rankfile", "rank 0=a slot=0\r\nrank 1=b slot=0\r\n"),
        ("--rankfile", "Rank 0=a slot=0\nrank 1=b SLOT=0\n"),
        (
            "--rankfile",
            "rank 0=a\nrank 1=::1 slot=0\nrank x=b slot=0\nrank 2=b slot=core\nrank 1 b slot=0\n",
        ),
        ("--rankfile", "rank 0=a slot=0\nrank 0=b slot=0\nrank 2=c slot=0\n"),
        ("--rankfile", "rank 0=a slot=0\n"),
        ("--rankfile", "a slots=2\n"),
        ("--rankfile", "# nothing\n"),
        ("--hostfile", "a slots=1\nb slots = 1 max_slots=4 # beside\nc slots=2\n"),
        ("--hostfile", "a\nb\n"),
        ("--hostfile", "a slots=1\n"),
        ("--hostfile", "a slots=0\nb slots=x\nc speed=3\n-d\nf00::1\n"),
        ("--hostfile", "a slots=1\nrank 0=a slot=0\n"),
        ("--hostfile", "rank 0=a slot=0\nrank 1=a slot=0\n"),
    ] {
        let sandbox = Sandbox::new();
        sandbox.write("places", file);
        let request = bound(|request| request.mpi_args = format!("{option} places"));
        text += &format!("== {option} {file:?}\n{}", sandbox.tell(&request));
        for rank in unisono_launch::plan(&request, &sandbox.caller())
            .iter()
            .flat_map(|job| &job.ranks)
        {
            text += &format!("rank {} on {:?} slot {:?}\n", rank.rank, rank.host, rank.slot);
        }
        text.push('\n');
    }
    golden("rankfiles.golden", &text);
}
