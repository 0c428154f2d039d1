//! Which instruction set a kernel runs on, found at run time. The results are the same on each, bit for bit.

/// Instruction sets with a path of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust; on AArch64 the compiler turns the same source into NEON.
    Portable,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Isa {
    /// The best instruction set of this CPU.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("fma")
            {
                return Isa::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Isa::Avx2;
            }
        }
        Isa::Portable
    }

    /// Name as in `UNISONO_ISA` and in headers.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// The instruction set with this name, if this CPU has it.
    ///
    /// # Errors
    /// An unknown name, or one that this CPU lacks, in words that list what works.
    pub fn named(name: &str) -> Result<Isa, String> {
        let best = Isa::detect();
        let all = [Isa::Portable, Isa::Avx2, Isa::Avx512];
        match all.into_iter().find(|isa| isa.name() == name) {
            Some(isa) if isa <= best => Ok(isa),
            Some(_) => Err(format!(
                "UNISONO_ISA is `{name}`, which this CPU does not have; it has {}",
                Isa::up_to(best)
            )),
            None => Err(format!(
                "UNISONO_ISA is `{name}`, which is no instruction set of unisono; on this CPU use one of {}",
                Isa::up_to(best)
            )),
        }
    }

    /// The instruction sets that this CPU can run, slowest first.
    pub fn available() -> Vec<Isa> {
        let best = Isa::detect();
        [Isa::Portable, Isa::Avx2, Isa::Avx512]
            .into_iter()
            .filter(|isa| *isa <= best)
            .collect()
    }

    fn up_to(best: Isa) -> String {
        let names: Vec<&str> = [Isa::Portable, Isa::Avx2, Isa::Avx512]
            .into_iter()
            .filter(|isa| *isa <= best)
            .map(Isa::name)
            .collect();
        names.join(", ")
    }
}
