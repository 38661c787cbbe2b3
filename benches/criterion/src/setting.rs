//! Where it runs: the backend, and how many ranks.

use std::env;

use tributary::Backend;

use crate::{Call, Result, MEMCPY, NCCL};

/// A backend and a number of ranks.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The backend.
    pub backend: Backend,
    /// The number of ranks; rank i is on device i.
    pub ranks: usize,
}

impl Setting {
    /// What the environment asks for.
    pub fn from_env() -> Result<Setting> {
        let backend = match env::var("TRIBUTARY_BENCH_BACKEND") {
            Ok(name) => Backend::find(&name).ok_or_else(|| {
                let names: Vec<&str> = Backend::all().into_iter().map(Backend::name).collect();
                format!("TRIBUTARY_BENCH_BACKEND={name}: this build has {}", names.join(", "))
            })?,
            Err(_) => Backend::all()
                .into_iter()
                .find(|backend| backend.devices().is_ok_and(|count| count > 0))
                .ok_or("no backend has a device")?,
        };
        let devices = backend.devices()?;
        if devices == 0 {
            return Err(format!("{backend} has no device here").into());
        }
        let ranks = match env::var("TRIBUTARY_BENCH_RANKS") {
            Ok(number) => number
                .parse()
                .ok()
                .filter(|ranks| (1..=devices).contains(ranks))
                .ok_or_else(|| format!("TRIBUTARY_BENCH_RANKS={number}: 1 to {devices} work"))?,
            Err(_) if backend.name() == "host" => 2,
            Err(_) => devices,
        };
        Ok(Setting { backend, ranks })
    }

    /// Are the ranks GPUs?
    pub fn on_gpus(self) -> bool {
        self.backend.name() == "nccl"
    }

    /// What a user would do without Tributary, for one buffer.
    pub fn peer(self) -> Call {
        if self.on_gpus() {
            NCCL
        } else {
            MEMCPY
        }
    }

    /// The name of a group of figures, such as `latency.host.2`. Figures of different settings are
    /// not compared with each other, so the setting is part of it.
    pub fn title(self, what: &str) -> String {
        format!("{what}.{}.{}", self.backend, self.ranks)
    }
}
