//! What a user may have of virtual interfaces, and the words in which more is refused.

use std::net::IpAddr;

use clearway_channel::Code;
use clearway_channel::control::{MacChoice, OpenVif, Refusal};
use clearway_classify::{Clause, Filter, Ports};
use clearway_nic::MacAddress;
use clearway_wire::digest::{Network, fields};

use super::wanted::Wanted;
use super::{COUNTED, Place, Station, denied, invalid, station};
use crate::filter::{Template, mirrored};
use crate::policy::VifRule;

/// How many of the filters that are allowed a refusal names.
pub(super) const NAMED_MAX: usize = 4;

/// How many of those that are wanted and not allowed it looks at for what a rule lacks: as many as
/// there may be networks of a TCP port's peers, at each of several addresses.
const LACKING_MAX: usize = 256;

/// What a user may have.
#[derive(Debug)]
pub(super) struct Rights<'a> {
    user: u32,
    what: What<'a>,
}

#[derive(Debug)]
enum What<'a> {
    /// The user is root, or the daemon's own.
    Everything,
    /// A rule names the user.
    Rule(&'a VifRule),
    /// No rule does.
    NoRule(Box<VifRule>),
}

impl<'a> Rights<'a> {
    pub(super) fn everything(user: u32) -> Self {
        Self { user, what: What::Everything }
    }

    pub(super) fn of_rule(user: u32, rule: Option<&'a VifRule>, vlan: Option<u16>) -> Self {
        let no_rule = || What::NoRule(Box::new(VifRule::unprivileged(vlan)));
        Self { user, what: rule.map_or_else(no_rule, What::Rule) }
    }

    fn rule(&self) -> Option<&VifRule> {
        match &self.what {
            What::Everything => None,
            What::Rule(rule) => Some(rule),
            What::NoRule(rule) => Some(rule),
        }
    }

    pub(super) fn rate_frames_per_s(&self) -> Option<u32> {
        self.rule().and_then(|rule| rule.rate_frames_per_s)
    }

    pub(super) fn vifs_max(&self) -> Option<usize> {
        self.rule().and_then(|rule| rule.vifs_max)
    }

    pub(super) fn too_many(&self, most: usize) -> Refusal {
        let key = if self.vifs_max().is_some() {
            "`vifs_max` in the [[policy.vif]] rule for the user"
        } else {
            "`vifs_per_user` in [policy.limits]"
        };
        let message = format!(
            "user {} has {most} {COUNTED}, which is the limit; close one first, or raise {key} of \
             the daemon's configuration",
            self.user
        );
        Refusal { code: Code::Limit, message }
    }

    pub(super) fn check_priority(&self, priority: u16) -> Result<(), Refusal> {
        match self.rule() {
            Some(rule) if priority > rule.priority_max => Err(self.missing(
                &format!("declare priority {priority}; the highest is {}", rule.priority_max),
                &Lack::Line(&format!("priority_max = {priority}")),
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn check_revoke(&self) -> Result<(), Refusal> {
        match self.what {
            What::Everything => Ok(()),
            What::Rule(_) | What::NoRule(_) => Err(denied(format!(
                "user {} may not take interfaces away from apps; only root and the daemon's own \
                 user may",
                self.user
            ))),
        }
    }

    pub(super) fn check_capture(&self) -> Result<(), Refusal> {
        match self.rule() {
            Some(rule) if !rule.captures => {
                let lack = Lack::Line("captures = true");
                Err(self.missing("capture what others send and receive", &lack))
            }
            _ => Ok(()),
        }
    }

    /// The Ethernet address of its own that the interface gets, if it wants one.
    pub(super) fn station(
        &self,
        open: &OpenVif,
        place: &Place,
        generated: MacAddress,
    ) -> Result<Option<Station>, Refusal> {
        let mac = match open.mac {
            None => return Ok(None),
            Some(MacChoice::Own) => generated,
            Some(MacChoice::Fixed(mac)) => {
                self.check_mac(mac.0, place)?;
                mac.0
            }
        };
        let address = open.address.map(|own| own.address);
        if let Some(rule) = self.rule()
            && rule.own_addresses.is_empty()
        {
            let example = address.map_or("10.0.0.50/32".to_owned(), prefix_of);
            let right = format!("own_addresses = [\"{example}\"]");
            return Err(self.missing("have an Ethernet address of its own", &Lack::Line(&right)));
        }
        if let Some(address) = address {
            self.check_address(address, place)?;
        }
        Ok(Some(Station { mac, address, owner: String::new() }))
    }

    /// If what the kernel sends to the Ethernet address that is wanted may come to the interface. A
    /// user could name that of a gateway, and have all that this host sends there.
    pub(super) fn may_take_from_kernel(&self, open: &OpenVif) -> bool {
        open.mac == Some(MacChoice::Own) || self.rule().is_none()
    }

    fn check_mac(&self, mac: MacAddress, place: &Place) -> Result<(), Refusal> {
        // IEEE 802, clause 8.4: the second bit on the wire is set in addresses that no vendor gave.
        const LOCALLY_ADMINISTERED: u8 = 2;
        let owner = place.stations.iter().find(|station| station.mac == mac);
        if mac == place.mac || owner.is_some() {
            let owner = owner.map_or("the NIC itself", |station| &station.owner);
            return Err(invalid(format!(
                "the Ethernet address that is wanted is that of {owner}; give another one, or \
                 \"own\" for one that the daemon makes up"
            )));
        }
        if self.rule().is_some() && mac[0] & LOCALLY_ADMINISTERED == 0 {
            return Err(denied(format!(
                "user {} may only have Ethernet addresses that no vendor gave away; give one that \
                 begins with 02, or \"own\" for one that the daemon makes up",
                self.user
            )));
        }
        Ok(())
    }

    fn check_address(&self, address: IpAddr, place: &Place) -> Result<(), Refusal> {
        let other = place.stations.iter().find(|station| station.address == Some(address));
        if place.host.contains(&address) || other.is_some() {
            let owner = other.map_or("the host itself", |station| &station.owner);
            return Err(invalid(format!(
                "the address {address} belongs to {owner}; give another one"
            )));
        }
        let is_of_one = !address.is_multicast() && !address.is_unspecified();
        if !is_of_one || matches!(address, IpAddr::V4(address) if address.is_broadcast()) {
            return Err(invalid(format!("{address} is not the address of a machine")));
        }
        match self.rule() {
            Some(rule) if !rule.own_addresses.iter().any(|network| network.on_link(address)) => {
                let right = format!("own_addresses = [\"{}\"]", prefix_of(address));
                Err(self.missing(&format!("have the address {address}"), &Lack::Line(&right)))
            }
            _ => Ok(()),
        }
    }

    /// Whether all that is wanted lies within what is allowed.
    pub(super) fn check(
        &self,
        wanted: &Wanted,
        place: &Place,
        own: Option<&Station>,
    ) -> Result<(), Refusal> {
        let Some(rule) = self.rule() else { return Ok(()) };
        let is_machine = own.is_some_and(|own| own.address.is_some());
        let mut receive = expanded(&rule.receive, place);
        let mut send = match &rule.send {
            Some(send) => expanded(send, place),
            None => receive.iter().filter_map(mirrored).collect(),
        };
        send.extend(
            own.and_then(|own| own.address).map(|own| station::of_address(own, place.vlan)),
        );
        let check_list = |verb: &str, filters: &[Filter], allowed: &[Filter]| {
            self.check_list(verb, filters, wanted.is_of_own, allowed, place)
        };
        if !is_machine {
            check_list("receive", &wanted.receive, &receive)?;
        }
        check_list("send", &wanted.transmit, &send)?;
        if !wanted.copies.is_empty() && !rule.copies && !is_machine {
            return Err(self.missing("have copies of frames", &Lack::Line("copies = true")));
        }
        receive.push(station::groups());
        check_list("receive", &wanted.copies, &receive)
    }

    /// Whether something of what is wanted to be received is allowed.
    pub(super) fn allow_some(&self, wanted: &Wanted, place: &Place) -> bool {
        let Some(rule) = self.rule() else { return true };
        let allowed = expanded(&rule.receive, place);
        let allowed: Vec<&Clause> = allowed.iter().flat_map(Filter::clauses).collect();
        let mut wanted = wanted.receive.iter().flat_map(Filter::clauses);
        wanted.any(|wanted| allowed.iter().any(|one| one.intersection(wanted).is_some()))
    }

    fn check_list(
        &self,
        verb: &str,
        wanted: &[Filter],
        is_of_own: bool,
        allowed: &[Filter],
        place: &Place,
    ) -> Result<(), Refusal> {
        let clauses = wanted.iter().flat_map(Filter::clauses);
        let lacking = clauses.filter(|clause| !is_within(clause, allowed)).map(untied);
        let lacking: Vec<Filter> = lacking.take(LACKING_MAX).collect();
        let Some(first) = lacking.first() else { return Ok(()) };
        let mut texts: Vec<String> =
            lacking.iter().map(|filter| in_words(filter, is_of_own, place)).collect();
        texts.dedup();
        let refusal = self.not_within(verb, first, &texts, allowed);
        Err(match of_own_addresses(verb, first, allowed, place) {
            Some(filter) => denied(format!("{}; `{filter}` is allowed", refusal.message)),
            None => refusal,
        })
    }

    /// `texts`: all that lacks, as a rule has it.
    fn not_within(
        &self,
        verb: &str,
        wanted: &Filter,
        texts: &[String],
        allowed: &[Filter],
    ) -> Refusal {
        let mut named: Vec<String> =
            allowed.iter().take(NAMED_MAX).map(|filter| format!("`{filter}`")).collect();
        if allowed.len() > NAMED_MAX {
            named.push(format!("{} more", allowed.len() - NAMED_MAX));
        }
        let named = if named.is_empty() { "nothing".to_owned() } else { named.join(", ") };
        let what = format!("{verb} `{wanted}`, which is not within what it may {verb}: {named}");
        self.missing(&what, &Lack::Filters { list: verb, texts })
    }

    /// A refusal: what is not allowed, and what in a rule would allow it.
    fn missing(&self, what: &str, lack: &Lack<'_>) -> Refusal {
        let user = self.user;
        denied(match &self.what {
            What::NoRule(rule) => format!(
                "user {user} may not {what}; no [[policy.vif]] rule of the daemon's configuration \
                 names the user, and one with `users = [{user}]` and {} would allow it beside what \
                 the user may without a rule",
                lack.of_new_rule(rule)
            ),
            _ => format!(
                "user {user} may not {what}; {} the [[policy.vif]] rule of the daemon's \
                 configuration that names the user would allow it",
                lack.within_rule()
            ),
        })
    }
}

/// What a rule lacks.
enum Lack<'r> {
    /// Filters in one of its lists.
    Filters { list: &'r str, texts: &'r [String] },
    /// A line.
    Line(&'r str),
}

impl Lack<'_> {
    /// The lines of a new rule, which is in the place of `default`: that is in it, too.
    fn of_new_rule(&self, default: &VifRule) -> String {
        let (lacking, more) = match self {
            Self::Filters { list: "receive", texts } => (*texts, String::new()),
            Self::Filters { list, texts } => (&[][..], format!(" and `{list} = {texts:?}`")),
            Self::Line(line) => (&[][..], format!(" and `{line}`")),
        };
        let default = default.receive.iter().map(Template::text);
        let receive: Vec<&str> = lacking.iter().map(String::as_str).chain(default).collect();
        format!("`receive = {receive:?}`{more}")
    }

    fn within_rule(&self) -> String {
        match self {
            Self::Filters { list, texts } => {
                let texts: Vec<String> = texts.iter().map(|text| format!("`\"{text}\"`")).collect();
                format!("{} in `{list}` of", texts.join(", "))
            }
            Self::Line(line) => format!("`{line}` in"),
        }
    }
}

/// A filter as a rule has it: of the host's addresses, whichever they are, if that was wanted.
fn in_words(filter: &Filter, is_of_own: bool, place: &Place) -> String {
    let mut own = place.addresses.iter().filter(|_| is_of_own);
    own.find_map(|address| Template::naming_own(filter, *address))
        .map_or_else(|| filter.to_string(), |template| template.text().to_owned())
}

fn is_within(clause: &Clause, allowed: &[Filter]) -> bool {
    allowed.iter().flat_map(Filter::clauses).any(|allowed| allowed.contains(clause))
}

/// The same for the host's own addresses only, if that is allowed: what was probably meant.
fn of_own_addresses(
    verb: &str,
    wanted: &Filter,
    allowed: &[Filter],
    place: &Place,
) -> Option<String> {
    let end = if verb == "send" { "src" } else { "dst" };
    let text = format!("{end} host own and {wanted}");
    let filters = Template::parse(&text).ok()?.expand(&place.addresses);
    let mut clauses = filters.iter().flat_map(Filter::clauses);
    (!filters.is_empty() && clauses.all(|clause| is_within(clause, allowed))).then_some(text)
}

/// A clause without what every interface is tied to, and no rule has to say.
fn untied(clause: &Clause) -> Filter {
    let ties = [fields::MAC_SOURCE, fields::ADVERTISES_ANOTHER, fields::ARP_SENDER_MAC];
    let is_arp = clause.pattern().field(fields::NETWORK).1 == Network::Arp as u64;
    let ties = if is_arp { &ties[..] } else { &ties[..2] };
    let pattern = ties.iter().fold(*clause.pattern(), |pattern, tie| pattern.without(*tie));
    let with_ports = |clause: Clause, of: Clause| {
        let clause = match of.source_ports() {
            Ports::ANY => clause,
            ports => clause.from_ports(ports)?,
        };
        match of.destination_ports() {
            Ports::ANY => Some(clause),
            ports => clause.to_ports(ports),
        }
    };
    with_ports(pattern.into(), *clause).unwrap_or(*clause).into()
}

fn expanded(templates: &[Template], place: &Place) -> Vec<Filter> {
    templates.iter().flat_map(|template| template.expand(&place.addresses)).collect()
}

/// An address as a network of its own.
fn prefix_of(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}
