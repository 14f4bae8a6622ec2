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
        }
    };
}
