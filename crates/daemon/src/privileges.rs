//! Giving up what root has and the daemon does not need.
//!
//! Called after the NICs and the control socket are open and before any thread is started, because
//! capabilities belong to threads. What is left is confined by `crate::confinement`.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::config::{Config, Driver};

/// What stays of the privileges of this process.
fn needed(config: &Config) -> CapabilitySet {
    // DPDK's drivers may use a kernel interface as well (net_af_xdp, net_tap, mlx5).
    let kernel_nic = |nic: &crate::config::Nic| !matches!(nic.driver, Driver::Memif(_));
    if config.nics.iter().any(kernel_nic) {
        // The interface's settings are put back at exit, and the kernel is asked to find
        // neighbours; the steering program's maps are changed when a NIC comes back; ports below
        // 1024 that the policy gives away are taken from the kernel's programs.
        CapabilitySet::NET_ADMIN
            | CapabilitySet::NET_RAW
            | CapabilitySet::BPF
            | CapabilitySet::NET_BIND_SERVICE
    } else {
        CapabilitySet::empty()
    }
}

/// Keeps only what this configuration needs, for this thread and all that it starts.
pub(crate) fn drop_unneeded(config: &Config) -> io::Result<()> {
    let held = capabilities(None)?;
    let kept = needed(config) & held.permitted;
    for capability in CapabilitySet::all().iter() {
        let removable = held.effective.contains(CapabilitySet::SETPCAP)
            && !kept.contains(capability)
            && capability_is_in_bounding_set(capability).unwrap_or(false);
        if removable {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets)?;
    set_no_new_privs(true)?;
    tracing::debug!(kept = ?kept, "privileges dropped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Interface, InterfaceDriver, Memif, MemifRole, Nic, XdpMode};

    #[test]
    fn memif_needs_nothing_and_a_kernel_interface_little() {
        let mut config = Config::default();
        let link = Memif::new("/tmp/x", MemifRole::Server);
        config.nics.push(Nic::new("m", Driver::Memif(link), Vec::new()));
        assert_eq!(needed(&config), CapabilitySet::empty());
        let eth0 = Interface {
            name: "eth0".into(),
            driver: InterfaceDriver::Auto,
            mode: XdpMode::Auto,
            queues: None,
        };
        config.nics.push(Nic::new("e", Driver::Interface(eth0), Vec::new()));
        assert!(needed(&config).contains(CapabilitySet::NET_ADMIN));
        assert!(!needed(&config).contains(CapabilitySet::SYS_ADMIN));
    }

    /// In a thread of its own, so that the other tests keep what they have.
    #[test]
    fn dropped_privileges_are_gone() {
        let after = std::thread::spawn(|| {
            drop_unneeded(&Config::default()).expect("dropping needs no privilege");
            capabilities(None).expect("own capabilities")
        });
        let after = after.join().expect("no panic");
        assert_eq!(after.permitted, CapabilitySet::empty());
        assert_eq!(after.effective, CapabilitySet::empty());
    }
}
