//! Counters, declared once: the field, its name, its unit, what it counts, when it rises and what
//! to do about it. Status, metrics, `clearway explain` and `docs/counters.md` come from that.

/// What is said of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The field, and the name everywhere.
    pub name: &'static str,
    /// Whether it only rises.
    pub kind: Kind,
    /// What it is a number of.
    pub unit: Unit,
    /// The field's documentation as it stands there.
    #[doc(hidden)]
    pub documented: &'static str,
    /// What makes it rise.
    pub rises: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

impl Counter {
    /// What is counted, in a sentence or two.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.documented.trim()
    }
}

/// Whether a number only rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It counts from when its owner began.
    Total,
    /// It says how much there is now.
    Level,
}

impl Kind {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Total => "counter",
            Self::Level => "level",
        }
    }
}

macro_rules! units {
    ($($name:ident = $word:literal,)+) => {
        /// What a counter is a number of.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "they are words")]
        pub enum Unit {
            $($name,)+
        }

        impl Unit {
            /// The word for it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }
    };
}

units! {
    Answers = "answers",
    Apps = "apps",
    Attempts = "attempts",
    Bytes = "bytes",
    Channels = "channels",
    Connections = "connections",
    Cookies = "cookies",
    Flows = "flows",
    Frames = "frames",
    Links = "links",
    Messages = "messages",
    Nanoseconds = "nanoseconds",
    Operations = "operations",
    Packets = "packets",
    Segments = "segments",
    Turns = "turns",
}

/// Declares a struct of `u64` counters with `iter()` over names and values, and `ALL` that says
/// what they are: the unit, when one rises, and what to do about it. What a counter counts is its
/// documentation.
///
/// ```
/// clearway_base::counters! {
///     /// What a door counts.
///     pub struct Door {
///         /// Frames that went in.
///         entered: Frames, "with each frame", "nothing: this is traffic";
///     }
/// }
/// let door = Door { entered: 3 };
/// assert_eq!(door.iter().collect::<Vec<_>>(), [("entered", 3)]);
/// assert_eq!(Door::restore(&door.save()), door);
/// assert_eq!(Door::ALL[0].help(), "Frames that went in.");
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident {
        $($(#[doc = $doc:literal])+ $field:ident: $unit:ident, $rises:literal, $remedy:literal;)+
    }) => {
        $crate::tally! {
            $(#[$meta])*
            $visibility struct $name {
                $($(#[doc = $doc])+ $field,)+
            }
        }

        impl $name {
            /// What they are, in the order of declaration.
            pub const ALL: &'static [$crate::Counter] = &[$($crate::Counter {
                name: stringify!($field),
                kind: $crate::Kind::Total,
                unit: $crate::Unit::$unit,
                documented: concat!($($doc),+),
                rises: $rises,
                remedy: $remedy,
            },)+];
        }

        /// As an object.
        impl $crate::export::serde::Serialize for $name {
            fn serialize<S: $crate::export::serde::Serializer>(
                &self,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.iter())
            }
        }
    };
}

/// Declares a struct some of whose fields are counters or levels. These have a unit, when they rise
/// and what to do about it behind their type; `COUNTED` says so.
///
/// ```
/// clearway_base::counted! {
///     /// A room.
///     pub struct Room {
///         /// Its name.
///         name: String,
///         /// Bytes in it.
///         filled: u32 => Level Bytes, "with what comes", "empty it";
///     }
/// }
/// assert_eq!(Room::COUNTED[0].name, "filled");
/// ```
#[macro_export]
macro_rules! counted {
    (
        @fields [$($out:tt)*] [$($known:tt)*]
        $(#[$meta:meta])* $visibility:vis struct $name:ident {}
    ) => {
        $(#[$meta])*
        $visibility struct $name { $($out)* }

        impl $name {
            /// What those of its fields are that are counters or levels.
            pub const COUNTED: &'static [$crate::Counter] = &[$($known)*];
        }
    };
    (@fields [$($out:tt)*] [$($known:tt)*] $(#[$meta:meta])* $visibility:vis struct $name:ident {
        $(#[doc = $doc:literal])+ $field:ident: $type:ty => $kind:ident $unit:ident, $rises:literal,
        $remedy:literal; $($rest:tt)*
    }) => {
        $crate::counted! {
            @fields
            [$($out)* $(#[doc = $doc])+ pub $field: $type,]
            [$($known)* $crate::Counter {
                name: stringify!($field),
                kind: $crate::Kind::$kind,
                unit: $crate::Unit::$unit,
                documented: concat!($($doc),+),
                rises: $rises,
                remedy: $remedy,
            },]
            $(#[$meta])* $visibility struct $name { $($rest)* }
        }
    };
    (@fields [$($out:tt)*] [$($known:tt)*] $(#[$meta:meta])* $visibility:vis struct $name:ident {
        $(#[$field_meta:meta])* $field:ident: $type:ty, $($rest:tt)*
    }) => {
        $crate::counted! {
            @fields
            [$($out)* $(#[$field_meta])* pub $field: $type,]
            [$($known)*]
            $(#[$meta])* $visibility struct $name { $($rest)* }
        }
    };
    ($(#[$meta:meta])* $visibility:vis struct $name:ident { $($fields:tt)* }) => {
        $crate::counted! { @fields [] [] $(#[$meta])* $visibility struct $name { $($fields)* } }
    };
}

/// Declares a struct of `u64` counters that nobody explains, as those of a simulation.
#[macro_export]
macro_rules! tally {
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
