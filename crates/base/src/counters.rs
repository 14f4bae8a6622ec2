//! Counters, declared once: the field, its description and its name in metrics.

/// Declares a struct of `u64` counters with `iter()` over names and values.
///
/// ```
/// clearway_base::counters! {
///     /// What a door counts.
///     pub struct Door {
///         /// People that went in.
///         entered,
///     }
/// }
/// let door = Door { entered: 3 };
/// assert_eq!(door.iter().collect::<Vec<_>>(), [("entered", 3)]);
/// assert_eq!(Door::restore(&door.save()), door);
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $visibility struct $name {
            $($(#[$field_meta])* pub $field: u64,)+
        }

        impl $name {
            /// Names and values, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field),)+].into_iter()
            }

            /// Goes on counting from saved values. Names that are not known are passed over: what
            /// is counted may change from release to release.
            #[allow(dead_code)]
            $visibility fn restore(saved: &[(String, u64)]) -> Self {
                let mut restored = Self::default();
                for (name, value) in saved {
                    match name.as_str() {
                        $(stringify!($field) => restored.$field = (*value).min(u64::MAX / 2),)+
                        _ => {}
                    }
                }
                restored
            }

            /// What `restore` takes.
            #[allow(dead_code)]
            $visibility fn save(&self) -> Vec<(String, u64)> {
                self.iter().map(|(name, value)| (name.to_owned(), value)).collect()
            }
        }
    };
}
