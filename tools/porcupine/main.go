// Says whether a history of a store of keys and values is linearizable, by porcupine (https://github.com/anishathalye/porcupine).
//
//	porcupine [-timeout 60s] [-html PREFIX] HISTORY
//
// HISTORY has a line for each operation (history.go says what is in it; model.go has the commands). Exit code 0: it is linearizable; 1: it is not, and the first operation that
// no order explains is named; 2: not decided in time; 3: there is no history, or it is malformed.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	isLinearizable = iota
	isNot
	isUndecided
	isMalformed
)

func main() {
	timeout := flag.Duration("timeout", time.Minute, "for each set of keys that operations have together")
	html := flag.String("html", "", "pictures of violations go to PREFIX-1.html and so on; beside the history if it is not given")
	flag.Parse()
	if flag.NArg() != 1 || *timeout <= 0 {
		fmt.Fprintln(os.Stderr, "error: one history, and a timeout above 0, are to be given\nnext: porcupine [-timeout 60s] [-html PREFIX] HISTORY")
		os.Exit(isMalformed)
	}
	if *html == "" {
		*html = flag.Arg(0)
	}
	os.Exit(run(flag.Arg(0), *html, *timeout, os.Stdout, os.Stderr))
}

func run(path, html string, timeout time.Duration, out, err io.Writer) int {
	began := time.Now()
	file, failure := os.Open(path)
	if failure != nil {
		fmt.Fprintf(err, "error: %v\nnext: name the file that the history was written to\n", failure)
		return isMalformed
	}
	defer file.Close()
	history, failure := read(file)
	if failure == nil && len(history) == 0 {
		failure = fmt.Errorf("it has no operation")
	}
	if failure != nil {
		fmt.Fprintf(err, "error: %s: %v\nnext: look at the program that wrote it; tools/porcupine/history.go says what a line has\n", path, failure)
		return isMalformed
	}
	all := partitions(history)
	found := check(all, timeout)
	for at, one := range found.illegal {
		if at == shownMax {
			fmt.Fprintf(out, "not linearizable: %d more sets of keys\n", len(found.illegal)-at)
			break
		}
		one.explain(out, timeout, fmt.Sprintf("%s-%d.html", html, at+1))
	}
	for _, one := range found.undecided {
		fmt.Fprintf(out, "not decided within %v: %s\n", timeout, one)
	}
	unknown, largest := 0, 0
	for _, one := range all {
		unknown += one.unknown
		if len(one.operations) > largest {
			largest = len(one.operations)
		}
	}
	what, code := "linearizable", isLinearizable
	switch {
	case len(found.illegal) > 0:
		what, code = fmt.Sprintf("NOT linearizable: %d of the sets", len(found.illegal)), isNot
	case len(found.undecided) > 0:
		what, code = fmt.Sprintf("not decided: %d of the sets; next: a longer -timeout, or fewer operations and unknown outcomes on a key", len(found.undecided)), isUndecided
	}
	fmt.Fprintf(out, "%d operations, %d with an unknown outcome, on %d sets of keys with at most %d operations each; checked in %.1f s: %s\n",
		len(history), unknown, len(all), largest, time.Since(began).Seconds(), what)
	return code
}
