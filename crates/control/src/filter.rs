//! Filters as the policy and apps write them: the language of `clearway_classify`, with the word
//! `own` for each of the host's addresses on the NIC that it is about.
//!
//! `dst host own and udp dst port 5353`, on a NIC with `10.0.0.2/24` and `fd00::2/64`, is two
//! filters, one for each address. Where `own` stands several times, it is the same address. A
//! filter that makes no sense for an address (`ip dst host own`, for an IPv6 one) is not there for
//! it.

mod mirror;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearway_classify::Filter;
use clearway_classify::filter::FilterError;

pub use mirror::mirrored;

/// The word for the host's addresses.
const OWN: &str = "own";

/// A filter in which `own` may stand. Valid for an IPv4 or for an IPv6 address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
}

impl Template {
    /// Checks a text. The column of an error is that in `text`.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let template = Self { text: text.to_owned() };
        // One documentation address of each family (RFC 5737, RFC 3849).
        let examples: [IpAddr; 2] = [
            Ipv4Addr::new(192, 0, 2, 1).into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        ];
        let [first, second] = examples.map(|example| template.for_address(example));
        match (first, second) {
            (Err(error), Err(_)) => Err(error),
            _ => Ok(template),
        }
    }

    /// What a filter says of one of the host's addresses, for each of them: `own` in its place.
    /// `None` if it says nothing of it.
    #[must_use]
    pub fn naming_own(filter: &Filter, address: IpAddr) -> Option<Self> {
        let (text, address) = (filter.to_string(), address.to_string());
        let text = words(&text).map(|word| if word == address { OWN } else { word }).collect();
        Some(Self { text }).filter(Self::names_own)
    }

    /// The filters that it stands for on a host with these addresses.
    #[must_use]
    pub fn expand(&self, own: &[IpAddr]) -> Vec<Filter> {
        let mut filters: Vec<Filter> =
            own.iter().filter_map(|address| self.for_address(*address).ok()).collect();
        if !self.names_own() {
            filters = self.text.parse().into_iter().collect();
        }
        filters
    }

    /// True if it depends on the host's addresses.
    #[must_use]
    pub fn names_own(&self) -> bool {
        words(&self.text).any(|word| word == OWN)
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn for_address(&self, address: IpAddr) -> Result<Filter, FilterError> {
        let address = address.to_string();
        let text: String =
            words(&self.text).map(|word| if word == OWN { &address } else { word }).collect();
        text.parse().map_err(|error: FilterError| {
            let column = column_before(&self.text, address.len(), error.column);
            FilterError { column, ..error }
        })
    }
}

/// The words of a text, and what is between them, in order: together they are the text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |character: char| !(character.is_whitespace() || "()[]&=".contains(character));
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = rest.find(|character| is_word(character) != is_word(first));
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        Some(word)
    })
}

/// Where in `text` that is which is at `column` after each `own` has become `length` bytes long.
fn column_before(text: &str, length: usize, column: usize) -> usize {
    let (mut before, mut after) = (1, 1);
    for word in words(text) {
        let (old, is_own) = (word.chars().count(), word == OWN);
        let new = if is_own { length } else { old };
        if column < after + new {
            return if is_own { before } else { before + column - after };
        }
        (before, after) = (before + old, after + new);
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, own: &[&str]) -> Vec<String> {
        let own: Vec<IpAddr> = own.iter().map(|own| own.parse().expect("an address")).collect();
        let template = Template::parse(text).expect(text);
        template.expand(&own).iter().map(ToString::to_string).collect()
    }

    fn filter(text: &str) -> String {
        text.parse::<Filter>().expect(text).to_string()
    }

    #[test]
    fn own_is_each_address_of_the_host() {
        let own = ["10.0.0.2", "fd00::2"];
        assert_eq!(
            texts("(src host own or dst host own) and udp", &own),
            [
                filter("(src host 10.0.0.2 or dst host 10.0.0.2) and udp"),
                filter("(src host fd00::2 or dst host fd00::2) and udp")
            ]
        );
        assert_eq!(texts("ip dst host own", &own), [filter("ip dst host 10.0.0.2")]);
        assert_eq!(texts("arp target own", &own), [filter("arp target 10.0.0.2")]);
        assert!(texts("dst host own", &[]).is_empty());
    }

    #[test]
    fn own_stands_where_an_address_stood() {
        let own: IpAddr = "10.0.0.2".parse().expect("an address");
        let named = |text: &str| Template::naming_own(&text.parse().expect(text), own);
        for text in ["dst host own and tcp dst port 80", "src net 10.1.0.0/16 and dst host own"] {
            let [filter] = &Template::parse(text).expect(text).expand(&[own])[..] else {
                panic!("{text} is one filter")
            };
            let template = named(&filter.to_string()).expect("it is about the host");
            assert_eq!(template.expand(&[own]), std::slice::from_ref(filter), "{template:?}");
            assert!(template.text().contains("dst host own"), "{template:?}");
        }
        assert_eq!(named("dst host 10.0.0.20 and udp"), None);
        assert_eq!(named("udp dst port 53"), None);
    }

    #[test]
    fn filter_without_own_does_not_depend_on_the_host() {
        assert_eq!(texts("udp dst port 53", &[]), [filter("udp dst port 53")]);
        assert!(!Template::parse("udp").expect("a filter").names_own());
    }

    #[test]
    fn errors_point_into_the_text_as_it_was_written() {
        for (text, column) in [
            ("udp dst prot 53", 9),
            ("dst host own and udp dst port 99999", 31),
            ("dst host own and", 17),
            ("(dst host own or src host own) and bogus", 36),
            ("own", 1),
            ("dst port own", 10),
        ] {
            let error = Template::parse(text).expect_err(text);
            assert_eq!(error.column, column, "{text}: {error}");
        }
    }
}
