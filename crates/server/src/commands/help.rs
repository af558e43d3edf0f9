//! `HELP` of commands about connections and the server: the same usage lines as Redis, and what is there besides.

use crate::reply::Reply;

const ACL: &str = "\
CAT [<category>]
    The commands of a category, or the names of all categories.
DELUSER <username> [<username> ...]
    Remove users.
DRYRUN <username> <command> [<arg> ...]
    Whether a user may run a command; it is not run.
GETUSER <username>
    The rules of a user.
GENPASS [<bits>]
    A random password of 256 bits, or of so many.
LIST
    All users with their rules.
LOAD
    Nothing: users are always as they are in the store.
LOG [<count> | RESET]
    The last requests that were refused, or forget them.
SAVE
    Nothing: users are saved when they change.
SETUSER <username> <attribute> [<attribute> ...]
    Make or change a user.
USERS
    The names of all users.
WHOAMI
    The name of the user of this connection.";

const CLIENT: &str = "\
CACHING (YES|NO)
    Whether the keys of the next command are tracked, with OPTIN or OPTOUT.
DURABILITY [bounded|local|quorum]
    What an answer to a write of this connection means: its place in the order of
    commits, this machine, or the write quorum.
GETREDIR
    The id of the client that is told of changed keys.
GETNAME
    The name of this connection.
ID
    The id of this connection.
INFO
    The line of this connection in CLIENT LIST.
KILL <ip:port>
    End the connection from this address.
KILL <option> <value> [<option> <value> [...]]
    End the connections that fit all of these:
    * ID <id>
    * ADDR (<ip:port>|<unixsocket>:0)
    * LADDR (<ip:port>|<unixsocket>:0)
    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
    * USER <username>
    * SKIPME (YES|NO): not this connection (default: yes)
LIST [options ...]
    All connections, or those that fit one of these:
    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
    * ID <id> [<id> ...]
UNPAUSE
    End a pause.
PAUSE <timeout> [WRITE|ALL]
    Hold back all requests, or those that write, for so many milliseconds.
REPLY (ON|OFF|SKIP)
    Whether this connection is sent replies.
SETINFO (LIB-NAME|LIB-VER) <value>
    The client library of this connection.
SETNAME <name>
    Name this connection.
UNBLOCK <clientid> [TIMEOUT|ERROR]
    End the wait of a blocked client, as if its time was over, or with an error.
TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]
         [OPTIN] [OPTOUT] [NOLOOP]
    Tell this client of changes of keys that it has read.
TRACKINGINFO
    Whether and how this client is told.
NO-EVICT (ON|OFF)
    Nothing: no client is evicted.
NO-TOUCH (ON|OFF)
    Nothing: all uses of keys are counted.";

const COMMAND: &str = "\
(no subcommand)
    Details of all commands.
COUNT
    How many commands there are.
LIST
    The names of all commands, with FILTERBY (MODULE|ACLCAT|PATTERN) <value> of some.
INFO [<command-name> ...]
    Details of these commands, or of all.
DOCS [<command-name> ...]
    Documentation of these commands, or of all.
GETKEYS <full-command>
    The keys of a command.
GETKEYSANDFLAGS <full-command>
    The keys of a command, and what it does to them.";

const CONFIG: &str = "\
GET <pattern>
    Settings whose names fit the pattern.
SET <directive> <value>
    Change settings; REWRITE makes that last.
RESETSTAT
    Nothing: counts of INFO grow as long as the server runs.
REWRITE
    Keep in the store what was changed by SET.";

const SLOWLOG: &str = "\
GET [<count>]
    The last slow requests (default: 10, -1 means all): id, time, microseconds,
    arguments, address and name of the client.
LEN
    How many are kept.
RESET
    Forget them.";

pub(super) fn help(name: &str, reply: &mut Reply) {
    let (title, text) = match name {
        "acl" => ("ACL", ACL),
        "client" => ("CLIENT", CLIENT),
        "command" => ("COMMAND", COMMAND),
        "config" => ("CONFIG", CONFIG),
        _ => ("SLOWLOG", SLOWLOG),
    };
    let title = format!("{title} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    let lines = std::iter::once(&title[..]).chain(text.lines()).chain(["HELP", "    Prints this help."]);
    reply.array(lines.clone().count());
    lines.for_each(|line| reply.simple(line));
}
