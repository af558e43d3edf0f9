//! `XGROUP`.

use super::super::second::second;
use super::super::{Context, Outcome, int, is};
use super::groups::{self, UNKNOWN};
use super::ids::{any, strict};
use super::no_group;
use crate::data::streams::{GROUP, Id};
use crate::data::{Head, Kind};
use crate::outcome::naming;
use crate::request::Arguments;

/// As Redis has it.
const HELP: [&str; 17] = [
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
    "HELP",
    "    Prints this help.",
];

pub(super) fn help(c: &mut Context<'_>, lines: &[&str]) -> Outcome {
    c.reply.array(lines.len());
    lines.iter().for_each(|line| c.reply.simple(line));
    Ok(())
}

/// What is wrong with the arguments of a subcommand.
pub(super) fn syntax(args: &Arguments<'_>, command: &str) -> super::Stop {
    let text = format!("ERR unknown subcommand or wrong number of arguments for '%'. Try {command} HELP.");
    naming(&text, &[args.get(1)])
}

#[derive(Default)]
struct Options {
    make: bool,
    read: Option<i64>,
}

fn options(args: &Arguments<'_>, name: &str) -> Outcome<Options> {
    let (mut options, mut at) = (Options::default(), 5);
    let (create, set) = (name == "create", name == "setid");
    while at < args.len() {
        if create && is(args.get(at), "MKSTREAM") {
            options.make = true;
            at += 1;
        } else if (create || set) && is(args.get(at), "ENTRIESREAD") && at + 1 < args.len() {
            let read = int(args.get(at + 1))?;
            if read < UNKNOWN {
                return Err("ERR value for ENTRIESREAD must be positive or -1".into());
            }
            options.read = Some(read);
            at += 2;
        } else {
            return Err(syntax(args, "XGROUP"));
        }
    }
    Ok(options)
}

pub(super) fn xgroup(c: &mut Context<'_>, args: &Arguments<'_>) -> Outcome {
    let name = second(args)?;
    if name == "help" {
        return help(c, &HELP);
    }
    let options = options(args, name)?;
    let (key, group_name) = (args.get(2), args.get(3));
    let head = c.head(key, Kind::Stream)?;
    if name == "create" {
        return create(c, args, head, &options);
    }
    let head = head.ok_or(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
    )?;
    let Some(mut group) = groups::group(c, &head, group_name)? else {
        if name == "destroy" {
            c.reply.int(0);
            return Ok(());
        }
        return Err(no_group(key, group_name));
    };
    match name {
        "setid" => {
            if args.len() != 5 && args.len() != 7 {
                return Err(syntax(args, "XGROUP"));
            }
            group.last = if args.get(4) == b"$" { head.marks.last } else { any(args.get(4), 0)? };
            group.read = options.read.unwrap_or(UNKNOWN);
            groups::save(c, &head, group_name, &group)?;
            c.reply.ok();
        }
        "destroy" => {
            c.tx.delete(&head.element(&[&[GROUP], group_name]))?;
            c.remove_part(&head, &group.part())?;
            c.reply.int(1);
        }
        "createconsumer" => {
            let made = groups::number_of(c, &head, &group, args.get(4))?.is_none();
            if made {
                let one = groups::new_consumer(c, &head, (group_name, &mut group), args.get(4))?;
                groups::save_consumer(c, &head, &group, &one)?;
            }
            c.reply.int(made.into());
        }
        _ => {
            let mut pending = 0;
            if let Some(number) = groups::number_of(c, &head, &group, args.get(4))? {
                let desk = groups::Desk::new(&head, group);
                let ids = desk.ids(c, Some(number), (Id::MIN, Id::MAX), 0)?;
                for id in &ids {
                    c.tx.delete(&group.pending(&head, *id))?;
                    c.tx.delete(&group.with(&head, number, *id))?;
                }
                c.tx.delete(&[&group.names(&head), args.get(4)].concat())?;
                c.tx.delete(&group.consumer(&head, number))?;
                // Not what is noted of it: stores may have notes that are too high.
                pending = ids.len();
            }
            c.reply.int(pending as i64);
        }
    }
    Ok(())
}

fn create(c: &mut Context<'_>, args: &Arguments<'_>, head: Option<Head>, options: &Options) -> Outcome {
    let (key, name) = (args.get(2), args.get(3));
    if head.is_none() && !options.make {
        return Err(
            "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically."
                .into(),
        );
    }
    if args.len() > 8 {
        return Err(syntax(args, "XGROUP"));
    }
    let last = match args.get(4) {
        b"$" => head.map_or(Id::MIN, |head| head.marks.last),
        text => strict(text, 0)?,
    };
    let is_new = head.is_none();
    let head = head.map_or_else(|| c.new_head(Kind::Stream), Ok)?;
    if groups::group(c, &head, name)?.is_some() {
        return Err("BUSYGROUP Consumer Group name already exists".into());
    }
    groups::create(c, &head, name, last, options.read.unwrap_or(UNKNOWN))?;
    if is_new {
        c.save(key, &head)?;
    }
    c.reply.ok();
    Ok(())
}
