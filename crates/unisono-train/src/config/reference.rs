//! What is generated from the table of keys: `docs/configuration.md` and the JSON schema.

use super::keys::{self, Becomes, Class, Key, Kind, Range, SECTIONS};
use super::value::{wanted, words};
use serde_json::{Map, Value, json};

/// The text of `docs/configuration.md`.
pub fn reference_markdown() -> String {
    let mut out = String::from(
        "# The configuration of a run\n\n\
         <!-- Generated from the table of keys (crates/unisono-train/src/config/keys) by a test; do not edit. -->\n\n\
         A run is described by one YAML file. The keys are tt-train's; those that are unisono's own say so.\n\
         `unisono init` writes a commented file, `unisono check -c run.yaml` says everything that is wrong with \
         one, and\n\
         `unisono schema` prints a JSON schema for editors. `--set training_config.max_steps=200` overrides a key.\n\n\
         Numbers may be written `0.0001`, `1e-4`, `1E-4`, `1.e-4`, `.0001` or `\"1e-4\"`; whole numbers also \
         `1e3` and `30_000`.\n\
         Paths may hold `${VAR}`. A key that is given in two places must have the same value in both.\n\n\
         A key that nobody has heard of is an error, with the nearest one that exists if one is near. The last two sections list \
         keys that are\n\
         known from other programs: those without meaning here are noted, and those not built yet are accepted \
         only where they\n\
         are off.\n",
    );
    for (section, doc) in SECTIONS {
        let rows: Vec<&Key> = keys::all()
            .filter(|row| keys::split(row.path).0 == *section && matches!(row.class, Class::Read))
            .collect();
        if rows.is_empty() {
            continue;
        }
        out.push_str(&format!(
            "\n## `{section}`\n\n{doc}\n\n| key | takes | default | meaning |\n|---|---|---|---|\n"
        ));
        for row in rows {
            let default = if row.default.is_empty() {
                String::new()
            } else {
                format!("`{}`", row.default)
            };
            let name = keys::split(row.path).1;
            out.push_str(&format!(
                "| `{name}` | {} | {default} | {} |\n",
                wanted(&row.kind),
                row.doc
            ));
        }
        let not_built: Vec<String> = keys::all()
            .filter(|row| keys::split(row.path).0 == *section)
            .filter_map(|row| match row.kind {
                Kind::Choice(choices) => {
                    let later: Vec<&str> = choices
                        .iter()
                        .filter(|c| matches!(c.becomes, Becomes::NotBuilt))
                        .map(|c| c.word)
                        .collect();
                    (!later.is_empty()).then(|| format!("`{}: {}`", keys::split(row.path).1, later.join(", ")))
                }
                _ => None,
            })
            .collect();
        if !not_built.is_empty() {
            out.push_str(&format!("\nKnown and not built yet: {}.\n", not_built.join("; ")));
        }
    }
    out.push_str("\n## Top level\n\n| key | takes | meaning |\n|---|---|---|\n");
    for row in keys::all().filter(|row| !row.path.contains('.') && matches!(row.class, Class::Read)) {
        out.push_str(&format!("| `{}` | {} | {} |\n", row.path, wanted(&row.kind), row.doc));
    }
    out.push_str("\n## Other names\n\n| name | is | |\n|---|---|---|\n");
    for row in keys::all() {
        if let Class::Alias(of) = row.class {
            out.push_str(&format!("| `{}` | `{of}` | {} |\n", row.path, row.doc));
        }
    }
    for (from, to) in keys::MOVED_SECTIONS {
        out.push_str(&format!(
            "| section `{from}` | section `{to}` | Another place of it. |\n"
        ));
    }
    out.push_str("\n## Not built yet\n\n| key | off | what is missing |\n|---|---|---|\n");
    for row in keys::all() {
        if let Class::NotBuilt { off, missing } = row.class {
            let off = match off.first() {
                None => "absent".to_string(),
                Some(&"") => "empty".to_string(),
                Some(off) => format!("`{off}`"),
            };
            out.push_str(&format!("| `{}` | {off} | {missing} |\n", row.path));
        }
    }
    out.push_str("\n## Without meaning here\n\n| key | why |\n|---|---|\n");
    for row in keys::all() {
        if let Class::NoMeaning(why) = row.class {
            out.push_str(&format!("| `{}` | {why} |\n", row.path));
        }
    }
    out
}

/// A JSON schema (draft 2020-12) of the configuration, for editors.
pub fn schema() -> Value {
    let mut root = object("A run of unisono.");
    for row in keys::all().filter(|row| !row.path.contains('[')) {
        let (section, name) = keys::split(row.path);
        let described = describe(row);
        properties(section_object(&mut root, "", section))
            .entry(name)
            .or_insert(described);
    }
    for (from, to) in keys::MOVED_SECTIONS {
        let target = to
            .split('.')
            .fold(Value::Object(root.clone()), |at, part| at["properties"][part].clone());
        let (outer, name) = keys::split(from);
        let at = if outer.is_empty() {
            &mut root
        } else {
            match properties(&mut root).get_mut(outer).and_then(Value::as_object_mut) {
                Some(at) => at,
                None => continue,
            }
        };
        let before = properties(at).remove(name);
        let both = match before {
            Some(before) => json!({ "anyOf": [before, target] }),
            None => target,
        };
        properties(at).insert(name.to_string(), both);
    }
    root.insert(
        "$schema".to_string(),
        json!("https://json-schema.org/draft/2020-12/schema"),
    );
    root.insert("title".to_string(), json!("Unisono run configuration"));
    Value::Object(root)
}

fn object(doc: &str) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("type".to_string(), json!("object"));
    map.insert("description".to_string(), json!(doc));
    map.insert("additionalProperties".to_string(), json!(false));
    map.insert("properties".to_string(), json!({}));
    map
}

/// The object of a section, made where it is missing; `above` is the section of `at`.
fn section_object<'a>(at: &'a mut Map<String, Value>, above: &str, below: &str) -> &'a mut Map<String, Value> {
    let (first, rest) = below.split_once('.').unwrap_or((below, ""));
    if first.is_empty() {
        return at;
    }
    let path = if above.is_empty() {
        first.to_string()
    } else {
        format!("{above}.{first}")
    };
    let slot = properties(at).entry(first).or_insert(Value::Null);
    // A key that is a path or a section: the section is the better description for an editor.
    if slot.get("properties").is_none() {
        let doc = SECTIONS
            .iter()
            .find(|(name, _)| *name == path)
            .map_or("", |(_, doc)| doc);
        *slot = Value::Object(object(doc));
    }
    match slot {
        Value::Object(next) => section_object(next, &path, rest),
        _ => unreachable!("made an object one line above"),
    }
}

/// The `properties` of an object's schema.
fn properties(object: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let slot = object.entry("properties").or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut()
        .unwrap_or_else(|| unreachable!("made an object one line above"))
}

fn describe(row: &Key) -> Value {
    let (kind, doc) = match row.class {
        Class::Read => (&row.kind, row.doc.to_string()),
        Class::Alias(of) => (&keys::known(of).kind, format!("Another name of {of}. {}", row.doc)),
        Class::NoMeaning(why) => (&Kind::Any, format!("Without meaning here: {why}.")),
        Class::NotBuilt { missing, .. } => (&Kind::Any, format!("{missing} is not built yet.")),
    };
    let mut schema = match kind {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Enabled => json!({ "enum": [true, false, "enabled", "disabled"] }),
        Kind::Int { min, max } if *max > i128::from(u32::MAX) => {
            json!({ "type": ["integer", "string"], "minimum": *min as i64 })
        }
        Kind::Int { min, max } => {
            json!({ "type": ["integer", "string"], "minimum": *min as i64, "maximum": *max as i64 })
        }
        Kind::Real(range) => real(*range),
        Kind::Text | Kind::Path => json!({ "type": "string" }),
        Kind::Choice(choices) => json!({ "enum": words(choices) }),
        Kind::Ints { min } => {
            json!({ "type": "array", "minItems": 1, "items": { "type": "integer", "minimum": *min as i64 } })
        }
        Kind::Texts => json!({ "type": ["array", "string"], "items": { "type": "string" } }),
        Kind::Memory => json!({ "type": ["integer", "string"] }),
        Kind::Phases => {
            let prefix = format!("{}[].", row.path);
            let mut phase = object("One phase.");
            for inner in keys::all().filter(|inner| inner.path.starts_with(&prefix)) {
                properties(&mut phase).insert(inner.path[prefix.len()..].to_string(), describe(inner));
            }
            json!({ "type": "array", "minItems": 1, "items": phase })
        }
        Kind::Any => json!({}),
    };
    schema["description"] = json!(doc);
    if matches!(row.class, Class::NoMeaning(_) | Class::NotBuilt { .. }) {
        schema["deprecated"] = json!(true);
    }
    if matches!(row.class, Class::Read) && !row.default.is_empty() {
        schema["default"] = default(row);
    }
    schema
}

fn real(range: Range) -> Value {
    let mut schema = json!({ "type": ["number", "string"] });
    match range {
        Range::Positive => schema["exclusiveMinimum"] = json!(0),
        Range::NonNegative => schema["minimum"] = json!(0),
        Range::Unit => {
            schema["minimum"] = json!(0);
            schema["maximum"] = json!(1);
        }
        Range::BelowOne => {
            schema["minimum"] = json!(0);
            schema["exclusiveMaximum"] = json!(1);
        }
        Range::AboveZero => {
            schema["exclusiveMinimum"] = json!(0);
            schema["maximum"] = json!(1);
        }
    }
    schema
}

/// The default as JSON: numbers, flags and lists of the table are JSON already, anything else is text.
fn default(row: &Key) -> Value {
    serde_json::from_str(row.default).unwrap_or_else(|_| json!(row.default))
}
