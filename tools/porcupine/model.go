package main

import (
	"hash/maphash"
	"reflect"
	"sort"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A command is a verb and its arguments: {"incrby", "k", "5"}.
type command []string

// A state is what the keys of one partition have. It is never changed: a step makes another one.
type state map[string]string

// An input is what a client asks for in one operation: several commands are one transaction.
type input []command

// An output is what each command has replied (nil, a string, or a list of these); none if the outcome is unknown.
type output struct {
	known   bool
	replies []any
}

// The keys that a command names; none if it is not one that the model has.
func (c command) keys() []string {
	arguments := map[string]int{"get": 1, "del": 1, "set": 2, "setnx": 2, "getset": 2, "incrby": 2, "append": 2, "cas": 3, "transfer": 3}
	switch count, found := arguments[c[0]]; {
	case c[0] == "mget":
		return c[1:]
	case !found || len(c) != count+1:
		return nil
	case c[0] == "transfer":
		return c[1:3]
	}
	return c[1:2]
}

func (c command) writes() bool { return c[0] != "get" && c[0] != "mget" }

func (s state) with(key, value string) state {
	next := make(state, len(s)+1)
	for k, v := range s {
		next[k] = v
	}
	next[key] = value
	return next
}

func (s state) without(key string) state {
	next := make(state, len(s))
	for k, v := range s {
		if k != key {
			next[k] = v
		}
	}
	return next
}

func (s state) get(key string) any {
	if value, found := s[key]; found {
		return value
	}
	return nil
}

// What a key has as a number, 0 if it has nothing, and whether it is one.
func (s state) number(key string) (int64, bool) {
	value, found := s[key]
	if !found {
		return 0, true
	}
	number, err := strconv.ParseInt(value, 10, 64)
	return number, err == nil
}

// One command on a state: the next state and the reply. Not possible if it is one that the server refuses, which histories do not have.
func (s state) step(c command) (next state, reply any, possible bool) {
	flag := map[bool]any{true: "1", false: "0"}
	current, exists := s[c[1]]
	switch c[0] {
	case "get":
		return s, s.get(c[1]), true
	case "mget":
		values := []any{}
		for _, key := range c[1:] {
			values = append(values, s.get(key))
		}
		return s, values, true
	case "set":
		return s.with(c[1], c[2]), "OK", true
	case "getset":
		return s.with(c[1], c[2]), s.get(c[1]), true
	case "setnx":
		if exists {
			return s, flag[false], true
		}
		return s.with(c[1], c[2]), flag[true], true
	case "del":
		return s.without(c[1]), flag[exists], true
	case "append":
		return s.with(c[1], current+c[2]), strconv.Itoa(len(current) + len(c[2])), true
	case "cas": // key, what it must have, what it gets
		if !exists || current != c[2] {
			return s, flag[false], true
		}
		return s.with(c[1], c[3]), flag[true], true
	case "incrby":
		now, isNumber := s.number(c[1])
		by, err := strconv.ParseInt(c[2], 10, 64)
		if !isNumber || err != nil {
			return s, nil, false
		}
		sum := strconv.FormatInt(now+by, 10)
		return s.with(c[1], sum), sum, true
	case "transfer": // from, to, how much; the reply is what from has then
		from, isNumber := s.number(c[1])
		to, isNumberToo := s.number(c[2])
		amount, err := strconv.ParseInt(c[3], 10, 64)
		if !isNumber || !isNumberToo || err != nil || c[1] == c[2] {
			return s, nil, false
		}
		if from < amount {
			return s, "insufficient", true
		}
		left := strconv.FormatInt(from-amount, 10)
		return s.with(c[1], left).with(c[2], strconv.FormatInt(to+amount, 10)), left, true
	}
	return s, nil, false
}

// One operation, whole or not at all: whether this can be what it replied, and the state behind it.
//
// One whose outcome is unknown ends behind all others. If it has not happened it stands there, where no reply shows it: so it may always be carried out.
func step(before state, asked input, got output) (bool, state) {
	now := before
	for at, one := range asked {
		next, reply, possible := now.step(one)
		if got.known && (!possible || !reflect.DeepEqual(reply, got.replies[at])) {
			return false, before
		}
		if !possible {
			return true, before
		}
		now = next
	}
	return true, now
}

var seed = maphash.MakeSeed()

// Of one partition: some keys, which have nothing at first.
var model = porcupine.Model{
	Init: func() interface{} { return state{} },
	Step: func(before, asked, got interface{}) (bool, interface{}) {
		return step(before.(state), asked.(input), got.(output))
	},
	Equal: func(one, other interface{}) bool { return reflect.DeepEqual(one, other) },
	Hash: func(of interface{}) uint64 {
		var all uint64
		for key, value := range of.(state) {
			all ^= maphash.String(seed, key+"\x00"+value)
		}
		return all
	},
	DescribeOperation: func(asked, got interface{}) string { return describe(asked.(input), got.(output)) },
	DescribeState:     func(of interface{}) string { return of.(state).String() },
}

func (s state) String() string {
	var all []string
	for key, value := range s {
		all = append(all, key+"="+strconv.Quote(value))
	}
	sort.Strings(all)
	return "{" + strings.Join(all, ", ") + "}"
}

func describe(asked input, got output) string {
	var all []string
	for at, one := range asked {
		text := strings.Join(one, " ")
		if got.known {
			text += " -> " + show(got.replies[at])
		}
		all = append(all, text)
	}
	text := strings.Join(all, "; ")
	if !got.known {
		text += " -> unknown"
	}
	return text
}

func show(reply any) string {
	switch reply := reply.(type) {
	case string:
		return strconv.Quote(reply)
	case []any:
		var all []string
		for _, one := range reply {
			all = append(all, show(one))
		}
		return "[" + strings.Join(all, " ") + "]"
	}
	return "nil"
}
