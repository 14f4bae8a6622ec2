//! Who may have which TCP port: whoever may have a virtual interface that receives what comes there
//! and sends the answers. A rule that names networks of peers (`src net`) gives the port to those
//! who name no others.

use clearway_channel::control::{OpenTcpPort, OpenVif, Refusal};

use super::wanted::Wanted;
use super::{Accounts, Grant, Peer, Place};

impl Accounts {
    /// What `peer` gets of the TCP port that it asks for: all of it, or a refusal. The port is
    /// granted whole, whichever networks its peers are in: nobody else has it for others.
    ///
    /// # Errors
    /// What it may not have, and why.
    pub fn grant_tcp_port(
        &self,
        peer: &Peer,
        open: &OpenTcpPort,
        place: &Place,
    ) -> Result<Grant, Refusal> {
        let wanted = |receive| {
            let open = OpenVif { receive, ..OpenVif::default() };
            Wanted::read(&open, place, None)
        };
        let whole = filter(open, place.vlan);
        let of_peer = |peers: &_| format!("{whole} and src net {peers}");
        let asked = match &open.peers[..] {
            [] => wanted(vec![whole.clone()])?,
            peers => wanted(peers.iter().map(of_peer).collect())?,
        };
        let rights = self.rights(peer, place.vlan);
        rights.check(&asked, place, None).map_err(|refusal| match refusal {
            Refusal { code, message } if rights.allow_some(&asked, place) => {
                let message = format!("{message}; or name fewer peers (`peers`) of the port");
                Refusal { code, message }
            }
            other => other,
        })?;
        self.granted(wanted(vec![whole])?, place, false)
    }
}

/// What comes to a port, in the words of filters.
fn filter(open: &OpenTcpPort, vlan: Option<u16>) -> String {
    let tag = vlan.map_or(String::new(), |vlan| format!("vlan {vlan} and "));
    let host = open.address.map_or("own".to_owned(), |address| address.to_string());
    format!("{tag}dst host {host} and tcp dst port {}", open.port)
}
