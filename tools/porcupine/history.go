package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sort"

	"github.com/anishathalye/porcupine"
)

// Bytes of a line of a history.
const lineMax = 1 << 20

// When an operation ends whose outcome is unknown.
const never = math.MaxInt64

// A line is one operation of one client:
//
//	{"client": 1, "do": [["incrby", "k", "5"]], "got": ["17"], "call": 1000, "return": 2000}
//
// Times are nanoseconds of one clock. Without "return" the outcome is unknown: it may have happened at any time behind its call, or never, and "got" is ignored. What was
// refused, so that it certainly never happened, has no line.
type line struct {
	Client *int       `json:"client"`
	Do     [][]string `json:"do"`
	Got    []any      `json:"got"`
	Call   *int64     `json:"call"`
	Return *int64     `json:"return"`
}

func (l line) operation() (porcupine.Operation, error) {
	none := porcupine.Operation{}
	if l.Client == nil || l.Call == nil || *l.Client < 0 {
		return none, fmt.Errorf(`"client" and "call" must be there, and the client not negative`)
	}
	if len(l.Do) == 0 {
		return none, fmt.Errorf(`"do" has no command`)
	}
	operation := porcupine.Operation{ClientId: *l.Client, Call: *l.Call, Return: never}
	var asked input
	for _, one := range l.Do {
		if len(one) < 2 || len(command(one).keys()) == 0 {
			return none, fmt.Errorf("the model has no command %q", one)
		}
		asked = append(asked, one)
	}
	operation.Input, operation.Output = asked, output{}
	if l.Return != nil {
		if len(l.Got) != len(l.Do) {
			return none, fmt.Errorf("%d commands and %d replies", len(l.Do), len(l.Got))
		}
		for _, one := range l.Got {
			if !isReply(one) {
				return none, fmt.Errorf("a reply is null, a string, or a list of these, not %v", one)
			}
		}
		if *l.Return < *l.Call {
			return none, fmt.Errorf("it returns before its call")
		}
		operation.Return, operation.Output = *l.Return, output{known: true, replies: l.Got}
	}
	return operation, nil
}

func isReply(got any) bool {
	list, isList := got.([]any)
	for _, one := range list {
		if _, isString := one.(string); !isString && one != nil {
			return false
		}
	}
	_, isString := got.(string)
	return isList || isString || got == nil
}

// All operations of a history but reads without an answer, which say nothing.
func read(from io.Reader) ([]porcupine.Operation, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, lineMax)
	var history []porcupine.Operation
	at := 0
	for lines.Scan() {
		at++
		var one line
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("line %d: %w", at, err)
		}
		operation, err := one.operation()
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", at, err)
		}
		operation.Metadata = at
		if isKnown(operation) || writes(operation) {
			history = append(history, operation)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", at+1, err)
	}
	return history, nil
}

func isKnown(operation porcupine.Operation) bool { return operation.Output.(output).known }

func writes(operation porcupine.Operation) bool {
	for _, one := range operation.Input.(input) {
		if one.writes() {
			return true
		}
	}
	return false
}

// Some keys, and all operations on them: keys that one operation has together are in one partition. A history is linearizable if each partition is.
type partition struct {
	keys       []string
	operations []porcupine.Operation
	unknown    int
}

func partitions(history []porcupine.Operation) []*partition {
	above := map[string]string{}
	var root func(key string) string
	root = func(key string) string {
		up, found := above[key]
		if !found {
			above[key] = key
		}
		if !found || up == key {
			return key
		}
		above[key] = root(up)
		return above[key]
	}
	for _, operation := range history {
		first := operation.Input.(input)[0].keys()[0]
		for _, one := range operation.Input.(input) {
			for _, key := range one.keys() {
				above[root(key)] = root(first)
			}
		}
	}
	byRoot := map[string]*partition{}
	var all []*partition
	for _, operation := range history {
		name := root(operation.Input.(input)[0].keys()[0])
		one, found := byRoot[name]
		if !found {
			one = &partition{}
			byRoot[name], all = one, append(all, one)
		}
		one.operations = append(one.operations, operation)
		if !isKnown(operation) {
			one.unknown++
		}
	}
	for key := range above {
		one := byRoot[root(key)]
		one.keys = append(one.keys, key)
	}
	for _, one := range all {
		sort.Strings(one.keys)
	}
	return all
}
