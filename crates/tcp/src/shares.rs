//! Who has how many places of a table that all share: nobody has more than are left for others.
//!
//! So one alone has half of it at most, two that want all a third each, and whoever comes finds
//! room (the "dynamic threshold" of A. Choudhury and E. Hahne for shared buffers).

use std::collections::BTreeMap;

/// Places by account.
#[derive(Debug, Default)]
pub(crate) struct Shares(BTreeMap<u32, usize>);

impl Shares {
    /// True if `account` may have one more while so many are free.
    pub(crate) fn may_enter(&self, account: u32, free: usize) -> bool {
        self.count(account) < free
    }

    pub(crate) fn count(&self, account: u32) -> usize {
        self.0.get(&account).copied().unwrap_or(0)
    }

    pub(crate) fn enter(&mut self, account: u32) {
        *self.0.entry(account).or_default() += 1;
    }

    pub(crate) fn leave(&mut self, account: u32) {
        let Some(count) = self.0.get_mut(&account) else { return };
        *count -= 1;
        if *count == 0 {
            self.0.remove(&account);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Shares;

    /// Who comes late finds room, however many want all of it.
    #[test]
    fn nobody_has_more_than_is_left() {
        let (mut shares, mut free) = (Shares::default(), 120);
        for (account, share) in [60, 30, 15, 8].into_iter().enumerate() {
            while shares.may_enter(account as u32, free) {
                shares.enter(account as u32);
                free -= 1;
            }
            assert_eq!(shares.count(account as u32), share);
        }
        shares.leave(3);
        assert_eq!((shares.count(3), shares.count(9)), (7, 0));
        (0..7).for_each(|_| shares.leave(3));
        assert_eq!(shares.0.len(), 3, "nothing is kept of who has nothing");
    }
}
