//! What apps have, as the daemon's status tells of it.

use clearway_daemon::text::escaped;
use serde_json::Value;

/// All that stands under `key` at the engines, each with the app and the engine that it belongs to.
pub(crate) fn owned(status: &Value, key: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for engine in list(status, "engines") {
        for thing in list(engine, key).iter().filter(|thing| thing.is_object()) {
            let app = list(status, "apps")
                .iter()
                .find(|app| app["engine"] == engine["index"] && app["channel"] == thing["channel"]);
            let app = app.unwrap_or(&Value::Null);
            let mut thing = thing.clone();
            for (key, value) in [
                ("app", &app["app"]),
                ("user", &app["user"]),
                ("process", &app["process"]),
                ("engine", &engine["engine"]),
                ("engine_index", &engine["index"]),
            ] {
                thing[key] = value.clone();
            }
            found.push(thing);
        }
    }
    found
}

/// A line of how many there are besides, of what stands under `key` at the engines, if there are
/// any.
pub(crate) fn omitted(status: &Value, key: &str) -> String {
    match status[format!("{key}_omitted")].as_u64().unwrap_or(0) {
        0 => String::new(),
        count => format!("and {count} more that did not fit in the answer\n"),
    }
}

/// What stands under `key`, if it is a list.
pub(crate) fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// A value for people.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::String(text) => escaped(text).into_owned(),
        other => other.to_string(),
    }
}
