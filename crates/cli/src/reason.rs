//! Why a peer does not answer: what can be found out from this host, and what to look at.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use clearway_bench::Error as BenchError;
use clearway_channel::Code;
use clearway_channel::control::{Ping, Probe, Reply, Request};
use clearway_client::resolve;
use clearway_engine::UDP_PORT_DEFAULT;

use crate::client::{Client, unexpected};
use crate::output::Failure;
use crate::owned::list;
use crate::zone;

/// A neighbour is known to be silent after three seconds, and this host may be busy.
const ANSWER_TIME: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(10);

/// A measurement between hosts that was not begun, with what is wrong with the other host.
pub(crate) fn of_bench(socket: Option<&Path>, error: BenchError) -> Failure {
    let BenchError::Connect { peer, cause } = &error else { return Failure::Bench(error) };
    Failure::Failed(match cause.code() {
        Code::Refused => {
            let (port, host) = (peer.port(), peer.ip());
            let is_here = if is_here(socket, host) { ", which is this host itself" } else { "" };
            format!(
                "nobody listens on port {port} of {host}{is_here}; start `clearway bench --serve` \
                 there, or give its port (HOST:PORT; LISTENERS in `clearway status` there)"
            )
        }
        Code::Unreachable | Code::TimedOut | Code::Lost => {
            let host = peer.ip().to_string();
            format!("cannot connect to {peer}: {}", of_silence(socket, &host, None))
        }
        _ => error.to_string(),
    })
}

/// Whether an address is one of the local daemon's.
fn is_here(socket: Option<&Path>, address: IpAddr) -> bool {
    let status = Client::connect(socket).and_then(|client| client.status(PATIENCE));
    let Ok(status) = status else { return false };
    let addresses = list(&status, "engines").iter().flat_map(|engine| list(engine, "addresses"));
    let hosts = addresses.filter_map(|network| network.as_str()?.split('/').next());
    hosts.filter_map(|host| host.parse::<IpAddr>().ok()).any(|own| own == address)
}

/// What is wrong with a host that has not answered any probe to this port of its daemon, or to the
/// one that daemons should have.
pub(crate) fn of_silence(socket: Option<&Path>, host: &str, udp_port: Option<u16>) -> String {
    find_out(socket, host, udp_port).unwrap_or_else(|failure| failure.to_string())
}

fn find_out(socket: Option<&Path>, host: &str, udp_port: Option<u16>) -> Result<String, Failure> {
    let client = Client::connect(socket)?;
    let peer = resolve(host, 0).map_err(Failure::failed)?[0];
    let status = client.status(PATIENCE)?;
    let own_port = status["udp_port"].as_u64().and_then(|port| u16::try_from(port).ok());
    let own_port = own_port.unwrap_or(UDP_PORT_DEFAULT);
    let asked = udp_port.unwrap_or(own_port);
    let probe = ask(&client, peer, asked)?;
    let is_there = matches!(probe, Probe::Lost | Probe::NoPort);
    if is_there && asked != UDP_PORT_DEFAULT {
        let other = ask(&client, peer, UDP_PORT_DEFAULT)?;
        if matches!(other, Probe::Answered(_)) {
            return Ok(other_port(host, asked));
        }
    }
    Ok(text(host, asked, probe))
}

/// What becomes of one probe to a port.
fn ask(client: &Client, peer: SocketAddr, udp_port: u16) -> Result<Probe, Failure> {
    let request = Request::Ping(Ping {
        peer: peer.ip(),
        zone: zone::of(peer)?,
        udp_port: Some(udp_port),
        count: 1,
        interval_ms: 0,
        eager: false,
        timeout_ms: ANSWER_TIME.as_millis() as u32,
        bytes: 0,
    });
    match client.ask(&request, ANSWER_TIME + PATIENCE)? {
        Reply::Pong(pong) => Ok(pong.probe),
        _ => Err(unexpected()),
    }
}

fn other_port(host: &str, asked: u16) -> String {
    format!(
        "no daemon at {host} has UDP port {asked}, but one answers there at {UDP_PORT_DEFAULT}: \
         `udp_port` in the configurations of the two has to be the same (and a restart after it \
         was changed)"
    )
}

fn text(host: &str, port: u16, probe: Probe) -> String {
    match probe {
        Probe::Answered(_) => format!(
            "{host} answers now, after it did not: packets get lost, or the link has just come \
             up; see the drops in `clearway status` at both ends"
        ),
        Probe::NoNeighbour => format!(
            "no host answers for {host} on the link: neither to ARP or neighbour discovery for \
             it, nor for its gateway; check the address, whether that host is up, and link and \
             addresses in `clearway status`"
        ),
        Probe::NoWay => format!(
            "a router on the way says that {host} cannot be reached; see `ip route get {host}`, \
             here and on the routers"
        ),
        Probe::NoPort => format!(
            "the host {host} is there, and nobody on it has UDP port {port}: no daemon runs \
             there (`clearway status` on it says so), or one with another `udp_port`, which \
             `clearway ping --udp-port N` asks for"
        ),
        Probe::Lost => format!(
            "no daemon answers at {host}, UDP port {port}; look there with `clearway status`: \
             does one run, and has it the same UDP port (`udp_port`; `clearway ping --udp-port N` \
             asks for another)? If so, does a firewall keep the port from it?"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can be told apart is told apart.
    #[test]
    fn each_reason_names_what_to_look_at() {
        for (probe, words) in [
            (Probe::Lost, "no daemon answers at host, UDP port 7"),
            (Probe::NoPort, "nobody on it has UDP port 7"),
            (Probe::NoNeighbour, "no host answers for host on the link"),
            (Probe::NoWay, "a router on the way"),
            (Probe::Answered(1), "answers now"),
        ] {
            let text = text("host", 7, probe);
            assert!(text.contains(words) && text.contains("ip route") | text.contains("clearway"));
        }
        assert!(other_port("host", 7).contains("`udp_port`"));
    }
}
