package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A line for each "CLIENT CALL-RETURN DO -> GOT ; DO -> GOT"; without a RETURN its outcome is unknown. Lists are [a b], and nil is nothing.
func history(t *testing.T, lines ...string) string {
	t.Helper()
	reply := func(word string) string {
		if word == "nil" {
			return "null"
		}
		return `"` + word + `"`
	}
	var text strings.Builder
	for _, one := range lines {
		parts := strings.SplitN(one, " ", 3)
		var do, got []string
		for _, each := range strings.Split(parts[2], " ; ") {
			asked, replied, _ := strings.Cut(each, " -> ")
			do = append(do, `["`+strings.Join(strings.Fields(asked), `","`)+`"]`)
			if strings.HasPrefix(replied, "[") {
				var list []string
				for _, word := range strings.Fields(strings.Trim(replied, "[]")) {
					list = append(list, reply(word))
				}
				got = append(got, "["+strings.Join(list, ",")+"]")
			} else {
				got = append(got, reply(replied))
			}
		}
		call, end, _ := strings.Cut(parts[1], "-")
		fmt.Fprintf(&text, `{"client": %s, "do": [%s], "got": [%s], "call": %s`, parts[0], strings.Join(do, ","), strings.Join(got, ","), call)
		if end != "" {
			fmt.Fprintf(&text, `, "return": %s`, end)
		}
		text.WriteString("}\n")
	}
	return text.String()
}

func checked(t *testing.T, text string, timeout time.Duration) (code int, out, dir string) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "history")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	code = run(path, path, timeout, &said, &said)
	return code, said.String(), dir
}

func TestWhatIsLinearizable(t *testing.T) {
	for name, lines := range map[string][]string{
		"each command": {
			"1 0-1 get k -> nil", "1 2-3 set k 5 -> OK", "1 4-5 getset k 6 -> 5", "1 6-7 setnx k 1 -> 0", "1 8-9 incrby k -7 -> -1", "1 10-11 append k 23 -> 4",
			"1 12-13 get k -> -123", "1 14-15 cas k -123 a -> 1", "1 16-17 cas k -123 b -> 0", "1 18-19 del k -> 1", "1 20-21 del k -> 0", "1 22-23 setnx k c -> 1", "1 24-25 get k -> c",
			"1 26-27 cas none x y -> 0", "1 28-29 append none xy -> 2", "1 30-31 getset new a -> nil",
		},
		"two at once, in either order":                       {"1 0-10 set k a -> OK", "2 0-10 set k b -> OK", "3 11-12 get k -> a"},
		"a read beside a write has either":                   {"1 0-10 set k a -> OK", "2 1-2 get k -> nil", "3 3-4 get k -> a", "2 5-6 get k -> a"},
		"ends that are the beginnings of others are at once": {"1 0-1 set k a -> OK", "2 1-2 get k -> nil"},
		"an outcome that is unknown: it has happened":        {"1 0 incrby k 1", "2 5-6 get k -> 1"},
		"it has not":                            {"1 0 incrby k 1", "2 5-6 get k -> nil", "2 7-8 incrby k 1 -> 1"},
		"it happens later":                      {"1 0 set k a", "2 5-6 get k -> nil", "2 7-8 get k -> a"},
		"it does not fit any more":              {"1 0 incrby k 1", "2 1-2 set k a -> OK", "2 3-4 get k -> a"},
		"a read without an answer says nothing": {"1 0 get k", "1 1-2 set k a -> OK"},
		"transfers": {
			"1 0-1 incrby a 10 -> 10 ; incrby b 5 -> 5", "1 2-9 transfer a b 4 -> 6", "2 3-8 mget a b -> [6 9]", "2 10-11 transfer a b 7 -> insufficient",
			"2 12-13 incrby a -1 -> 5 ; incrby b 1 -> 10 ; mget a b c -> [5 10 nil]",
		},
		"an unknown transfer, seen": {"1 0-1 set a 10 -> OK", "1 2 transfer a b 4", "2 3-4 mget a b -> [10 nil]", "2 5-6 mget a b -> [6 4]"},
		"keys are apart":            {"1 0-1 set a 1 -> OK", "1 2-3 set b 2 -> OK", "2 4-5 get a -> 1", "2 6-7 get b -> 2"},
	} {
		if code, out, _ := checked(t, history(t, lines...), time.Minute); code != isLinearizable {
			t.Errorf("%s: %d\n%s", name, code, out)
		}
	}
}

func TestWhatIsNot(t *testing.T) {
	for name, lines := range map[string][]string{
		"a stale read":                {"1 0-1 set k a -> OK", "1 2-3 set k b -> OK", "2 4-5 get k -> a"},
		"a lost write":                {"1 0-1 set k a -> OK", "2 2-3 get k -> nil"},
		"a write that was never made": {"1 0-1 set k a -> OK", "2 2-3 get k -> z"},
		"a doubled INCR":              {"1 0-1 incrby k 1 -> 1", "1 2-3 incrby k 1 -> 3"},
		"a doubled one, read":         {"1 0-1 incrby k 1 -> 1", "2 2-3 get k -> 2"},
		"two of the same reply":       {"1 0-9 incrby k 1 -> 1", "2 0-9 incrby k 1 -> 1"},
		"a lost append":               {"1 0-1 append k ab -> 2", "1 2-3 append k c -> 1"},
		"two winners":                 {"1 0-9 setnx k a -> 1", "2 0-9 setnx k b -> 1"},
		"two exchanges of one value":  {"1 0-1 set k a -> OK", "1 2-9 cas k a b -> 1", "2 2-9 cas k a c -> 1"},
		"two deletions":               {"1 0-1 set k a -> OK", "1 2-9 del k -> 1", "2 2-9 del k -> 1"},
		"a value that comes back":     {"1 0-9 set k a -> OK", "2 1-2 get k -> a", "2 3-4 get k -> nil"},
		"an unknown one, undone":      {"1 0 incrby k 1", "2 1-2 get k -> 1", "2 3-4 get k -> nil"},
		"an unknown one, twice":       {"1 0 incrby k 1", "2 1-2 get k -> 2"},
		"an unknown one, too early":   {"2 0-1 get k -> a", "1 2 set k a"},
		"half a transfer":             {"1 0-1 set a 10 -> OK", "1 2-9 transfer a b 4 -> 6", "2 3-4 mget a b -> [6 nil]"},
		"half a transaction":          {"1 0-9 set a 1 -> OK ; set b 1 -> OK", "2 3-4 mget a b -> [nil 1]"},
		"two orders of two keys":      {"1 0-9 set a 1 -> OK ; get b -> nil", "2 0-9 set b 1 -> OK ; get a -> nil"},
		"what there is not, moved":    {"1 0-1 set a 3 -> OK", "1 2-3 transfer a b 4 -> -1"},
	} {
		code, out, dir := checked(t, history(t, lines...), time.Minute)
		if code != isNot || !strings.Contains(out, "NOT linearizable: 1 of the sets") {
			t.Errorf("%s: %d\n%s", name, code, out)
		}
		picture, _ := os.ReadFile(filepath.Join(dir, "history-1.html"))
		if !strings.Contains(string(picture), "<html") || !strings.Contains(out, "history-1.html") {
			t.Errorf("%s has no picture:\n%s", name, out)
		}
	}
}

func TestTheOperationThatIsWrongIsNamed(t *testing.T) {
	lines := []string{"1 0-1 set other a -> OK"}
	for at := 0; at < 300; at++ {
		lines = append(lines, fmt.Sprintf("%d %d-%d incrby k 1 -> %d", at%4, 10*at+2, 10*at+8, at+1))
	}
	lines = append(lines, "5 1500-1600 get k -> 150", "5 1700-1710 get k -> 149", "5 1720 incrby k 1", "5 3100-3101 get other -> a")
	code, out, _ := checked(t, history(t, lines...), time.Minute)
	if want := "cannot be placed: line 303, client 5, 0.000002 s to 0.000002 s: get k -> \"149\""; code != isNot || !strings.Contains(out, want) {
		t.Errorf("%d, not %s\n%s", code, want, out)
	}
	if strings.Count(out, "incrby") > aroundMax || strings.Contains(out, "other") {
		t.Errorf("too much is shown:\n%s", out)
	}
}

func TestManyClientsAndUnknownOutcomesAreDecidedSoon(t *testing.T) {
	var lines []string
	for at := 0; at < 200; at++ {
		from := 10 * at
		lines = append(lines, fmt.Sprintf("%d %d-%d incrby k 2 -> %d", at%5, from, from+35, 2*at+2))
	}
	for at := 0; at < 8; at++ {
		lines = append(lines, fmt.Sprintf("9 %d incrby k 100", 200*at))
	}
	if code, out, _ := checked(t, history(t, lines...), time.Minute); code != isLinearizable {
		t.Errorf("%d\n%s", code, out)
	}
}

func TestWhatIsNotDecidedInTimeIsNotSaidToBeRight(t *testing.T) {
	lines := []string{"0 0-100000 get k -> none"}
	for at := 1; at < 60; at++ {
		lines = append(lines, fmt.Sprintf("%d 1-90000 set k %d -> OK", at, at))
	}
	code, out, _ := checked(t, history(t, lines...), 50*time.Millisecond)
	if code != isUndecided || !strings.Contains(out, "not decided within 50ms: k (60 operations") || !strings.Contains(out, "next:") {
		t.Errorf("%d\n%s", code, out)
	}
}

func TestWhatIsMalformedIsSaid(t *testing.T) {
	good := history(t, "1 0-1 set k a -> OK")
	for text, want := range map[string]string{
		"":               "it has no operation",
		good + good[:20]: "line 2: unexpected end",
		good + "{}\n":    "line 2: \"client\" and \"call\"",
		strings.Replace(good, `"set","k","a"`, `"set","k"`, 1):                              "no command [\"set\" \"k\"]",
		strings.Replace(good, `"set"`, `"frob"`, 1):                                         "no command [\"frob\"",
		strings.Replace(good, `"got": ["OK"]`, `"got": []`, 1):                              "1 commands and 0 replies",
		strings.Replace(good, `"got": ["OK"]`, `"got": [1]`, 1):                             "a reply is null, a string",
		strings.Replace(good, `"call": 0`, `"call": 5`, 1):                                  "returns before its call",
		strings.Replace(good, `"client": 1`, `"client": -1`, 1):                             "not negative",
		strings.Replace(good, `[["set","k","a"]]`, `[]`, 1):                                 "\"do\" has no command",
		`{"client": 1, "call": 1, "do": [["get", "` + strings.Repeat("k", lineMax) + `"]]}`: "line 1: bufio.Scanner: token too long",
	} {
		if code, out, _ := checked(t, text, time.Minute); code != isMalformed || !strings.Contains(out, want) || !strings.Contains(out, "next:") {
			t.Errorf("%d, not %q\n%.300s", code, want, out)
		}
	}
	var said strings.Builder
	if code := run(filepath.Join(t.TempDir(), "none"), "", time.Minute, &said, &said); code != isMalformed || !strings.Contains(said.String(), "next:") {
		t.Errorf("%d\n%s", code, said.String())
	}
}
