package main

import (
	"fmt"
	"io"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Violations that are shown one by one, and how many operations around each.
const shownMax, aroundMax = 3, 12

// What was found of a history.
type verdict struct {
	illegal, undecided []*partition
}

// Checks each partition, in at most this time each.
func check(all []*partition, timeout time.Duration) verdict {
	results := make([]porcupine.CheckResult, len(all))
	next := make(chan int)
	var workers sync.WaitGroup
	for range make([]struct{}, runtime.GOMAXPROCS(0)) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for at := range next {
				results[at] = porcupine.CheckOperationsTimeout(model, all[at].operations, timeout)
			}
		}()
	}
	for at := range all {
		next <- at
	}
	close(next)
	workers.Wait()
	var found verdict
	for at, one := range all {
		switch results[at] {
		case porcupine.Illegal:
			found.illegal = append(found.illegal, one)
		case porcupine.Unknown:
			found.undecided = append(found.undecided, one)
		}
	}
	return found
}

// What was known at a moment: operations that had not ended then have no answer, and later ones have not begun.
func upTo(operations []porcupine.Operation, moment int64) []porcupine.Operation {
	var known []porcupine.Operation
	for _, one := range operations {
		if one.Call > moment {
			continue
		}
		if isKnown(one) && one.Return > moment {
			one.Return, one.Output = never, output{}
		}
		if isKnown(one) || writes(one) {
			known = append(known, one)
		}
	}
	return known
}

// The first operation, by its end, that no order explains together with all that ended before it; and what was known when it ended.
//
// A history that is linearizable is so up to each moment, so that the first moment at which it is not is found by bisection.
func culprit(operations []porcupine.Operation, timeout time.Duration) (porcupine.Operation, []porcupine.Operation) {
	var ended []porcupine.Operation
	for _, one := range operations {
		if isKnown(one) {
			ended = append(ended, one)
		}
	}
	sort.SliceStable(ended, func(a, b int) bool { return ended[a].Return < ended[b].Return })
	at := sort.Search(len(ended)-1, func(at int) bool {
		return porcupine.CheckOperationsTimeout(model, upTo(operations, ended[at].Return), timeout) == porcupine.Illegal
	})
	return ended[at], upTo(operations, ended[at].Return)
}

// Says of one partition why it is not linearizable, with a picture at path if there is one.
func (p *partition) explain(to io.Writer, timeout time.Duration, path string) {
	wrong, known := culprit(p.operations, timeout)
	first := p.operations[0].Call
	for _, one := range p.operations {
		if one.Call < first {
			first = one.Call
		}
	}
	tell := func(one porcupine.Operation) string {
		end := "without an end"
		if isKnown(one) {
			end = fmt.Sprintf("to %.6f s", float64(one.Return-first)/1e9)
		}
		what := model.DescribeOperation(one.Input, one.Output)
		return fmt.Sprintf("line %v, client %d, %.6f s %s: %s", one.Metadata, one.ClientId, float64(one.Call-first)/1e9, end, what)
	}
	fmt.Fprintf(to, "not linearizable: %s\n", p)
	fmt.Fprintf(to, "  cannot be placed: %s\n", tell(wrong))
	fmt.Fprintf(to, "  all that ended before it can be, without it; the operations before it and around it:\n")
	sort.SliceStable(known, func(a, b int) bool { return known[a].Call < known[b].Call })
	from := len(known) - aroundMax
	if from < 0 {
		from = 0
	}
	for _, one := range known[from:] {
		fmt.Fprintf(to, "    %s\n", tell(one))
	}
	if path == "" {
		return
	}
	// An operation without an end would hide the later ones of its client.
	for at := range known {
		if !isKnown(known[at]) {
			known[at].ClientId = 1000 + at
		}
	}
	_, info := porcupine.CheckOperationsVerbose(model, known, timeout)
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		fmt.Fprintf(to, "  no picture of it: %v\n", err)
		return
	}
	fmt.Fprintf(to, "  a picture of all that was known then, for a browser: %s\n", path)
}

func (p *partition) String() string {
	return fmt.Sprintf("%s (%d operations, %d with an unknown outcome)", strings.Join(p.keys, ", "), len(p.operations), p.unknown)
}
