// Reads each change of a topic once, whatever crashes: consume-once BROKERS TOPIC FILE [IDLE_SECONDS]. A batch is one line of FILE:
// its results, then for each partition the highest mr-pos and the next offset. A line that was cut does not count.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type mark struct {
	position string
	next     int64
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// What FILE says. A line that was cut is removed from it.
func load(path string) (*os.File, map[int32]mark) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	must(err)
	text, err := os.ReadFile(path)
	must(err)
	end, marks := strings.LastIndex(string(text), "\n")+1, map[int32]mark{}
	for _, line := range strings.Split(strings.TrimSuffix(string(text[:end]), "\n"), "\n") {
		for _, word := range strings.Fields(line[strings.LastIndex(line, "\t")+1:]) {
			parts := strings.Split(word, ":")
			partition, _ := strconv.Atoi(parts[0])
			next, _ := strconv.ParseInt(parts[2], 10, 64)
			marks[int32(partition)] = mark{parts[1], next}
		}
	}
	must(file.Truncate(int64(end)))
	_, err = file.Seek(0, 2)
	must(err)
	return file, marks
}

func position(record *kgo.Record) string {
	for _, header := range record.Headers {
		if header.Key == "mr-pos" {
			return string(header.Value)
		}
	}
	return ""
}

func main() {
	topic, idle := os.Args[2], 1<<30
	if len(os.Args) > 4 {
		idle, _ = strconv.Atoi(os.Args[4])
	}
	file, marks := load(os.Args[3])
	stored := map[int32]kgo.Offset{} // FILE knows where we are; other partitions are read from their beginning
	for partition, mark := range marks {
		stored[partition] = kgo.NewOffset().At(mark.next)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.ConsumeTopics(topic),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: stored}),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted())) // the default is ReadUncommitted
	must(err)
	must(client.Ping(context.Background()))
	dropped, heard := 0, time.Now()
	for time.Since(heard) < time.Duration(idle)*time.Second {
		wait, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		batch := client.PollFetches(wait)
		cancel()
		results, moved := "", map[int32]bool{}
		batch.EachRecord(func(record *kgo.Record) {
			place := position(record)
			last := marks[record.Partition].position
			if place > last {
				results += string(record.Key) + "\t"
				last = place
			} else {
				dropped++
			}
			marks[record.Partition] = mark{last, record.Offset + 1}
			moved[record.Partition] = true
		})
		if len(moved) > 0 {
			words := []string{}
			for partition := range moved {
				words = append(words, fmt.Sprintf("%d:%s:%d", partition, marks[partition].position, marks[partition].next))
			}
			_, err = file.WriteString(results + strings.Join(words, " ") + "\n")
			must(err)
			heard = time.Now()
		}
	}
	fmt.Println(dropped, "repeats dropped")
}
