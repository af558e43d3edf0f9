// Runs go-ycsb's own client with its own binding for Redis, and nothing else of it: its command also builds in some thirty other stores.
//
//	ycsb load|run name=value ...
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/magiconair/properties"
	"github.com/pingcap/go-ycsb/pkg/client"
	"github.com/pingcap/go-ycsb/pkg/measurement"
	"github.com/pingcap/go-ycsb/pkg/prop"
	"github.com/pingcap/go-ycsb/pkg/ycsb"

	_ "github.com/pingcap/go-ycsb/db/redis"
	_ "github.com/pingcap/go-ycsb/pkg/workload"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || (args[0] != "load" && args[0] != "run") {
		return fmt.Errorf("usage: ycsb load|run name=value ...")
	}
	p := properties.NewProperties()
	p.Set(prop.DoTransactions, fmt.Sprint(args[0] == "run"))
	p.Set(prop.Command, args[0])
	for _, arg := range args[1:] {
		name, value, found := strings.Cut(arg, "=")
		if !found {
			return fmt.Errorf("%q is not name=value", arg)
		}
		p.Set(name, value)
	}
	measurement.InitMeasure(p)
	workload, err := ycsb.GetWorkloadCreator("core").Create(p)
	if err != nil {
		return err
	}
	db, err := ycsb.GetDBCreator("redis").Create(p)
	if err != nil {
		return err
	}
	client.NewClient(p, workload, client.DbWrapper{DB: db}).Run(context.Background())
	measurement.Output()
	return nil
}
