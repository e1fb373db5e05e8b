package bundle

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// pseudonyms replace names. The key is known to this process alone and is gone with it, so a pseudonym cannot be
// computed from a guessed name.
type pseudonyms struct {
	key   []byte
	names map[string]string // pseudonyms by name
	keep  map[string]bool   // names that every installation has
	off   bool              // nothing is replaced, and no name is remembered

	long  *strings.Replacer // nil after a name was added
	short map[string]string
}

func newPseudonyms(keep ...string) *pseudonyms {
	p := &pseudonyms{key: make([]byte, 32), names: map[string]string{}, keep: map[string]bool{"": true}}
	_, _ = rand.Read(p.key) // never fails (crypto/rand)
	for _, name := range keep {
		p.keep[name] = true
	}
	return p
}

// of is the pseudonym of a name, which is known from then on.
func (p *pseudonyms) of(name string) string {
	if p.off || p.keep[name] {
		return name
	}
	if known, ok := p.names[name]; ok {
		return known
	}
	mac := hmac.New(sha256.New, p.key)
	mac.Write([]byte(name))
	p.names[name] = "anon-" + hex.EncodeToString(mac.Sum(nil)[:6])
	p.long = nil
	return p.names[name]
}

// inWords is the length below which a name is replaced as a whole word only: "app" is part of many words.
const inWords = 5

// whole says whether a name is replaced as a whole word only.
func whole(name string) bool {
	return len(name) < inWords && !strings.ContainsAny(name, "-.")
}

var (
	word = regexp.MustCompile(`[A-Za-z0-9]+`)
	// uid is one that the API server makes. The systemd driver writes it with _ into the path of a cgroup.
	uid     = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	address = regexp.MustCompile(`\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b`)
)

// text replaces the known names in a text, and addresses.
func (p *pseudonyms) text(s string) string {
	if p.long == nil {
		p.prepare()
	}
	s = p.long.Replace(s)
	s = word.ReplaceAllStringFunc(s, func(w string) string {
		if name, ok := p.short[w]; ok {
			return name
		}
		return w
	})
	return address.ReplaceAllStringFunc(s, p.of)
}

// prepare orders the names, the longest first: a name may be part of another.
func (p *pseudonyms) prepare() {
	p.short = map[string]string{}
	var pairs []string
	for _, name := range slices.SortedFunc(maps.Keys(p.names), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	}) {
		if whole(name) {
			p.short[name] = p.names[name]
		} else {
			pairs = append(pairs, name, p.names[name])
			if uid.MatchString(name) {
				pairs = append(pairs, strings.ReplaceAll(name, "-", "_"), p.names[name])
			}
		}
	}
	p.long = strings.NewReplacer(pairs...)
}

// value replaces the known names in all strings of a value as JSON has it, and in the keys of its objects.
func (p *pseudonyms) value(v any) any {
	switch v := v.(type) {
	case string:
		return p.text(v)
	case []any:
		for i := range v {
			v[i] = p.value(v[i])
		}
	case map[string]any:
		for _, key := range slices.Collect(maps.Keys(v)) {
			inner := p.value(v[key])
			if _, known := p.names[key]; known {
				delete(v, key)
				key = p.of(key)
			}
			v[key] = inner
		}
	}
	return v
}

// Where names stand in objects of Kubernetes and of MBCAS, as JSON has them.
var (
	// references are objects with the name, namespace and uid of an object.
	references = []string{"metadata", "involvedObject", "related", "podRef", "targetRef", "scaleTargetRef"}
	// lists are lists of objects with names.
	lists = []string{"containers", "initContainers", "ephemeralContainers", "ownerReferences", "limits", "declaredLimits", "appliedLimits"}
	// fields are names.
	fields = []string{"nodeName", "node", "pod", "namespace", "uid", "allocationUID", "hostname", "podIP", "hostIP", "ip", "address",
		"serviceAccountName", "providerID", "machineID", "systemUUID", "bootID", "generateName", "container", "lease", "host", "reportingInstance"}
	// kinds are names after a kind and a slash, such as hpa/cart.
	kinds = []string{"floorBy", "ceilingBy", "noDecrease", "demandBy"}
	// keyed are objects whose keys are names of containers: those of the audit trail.
	keyed = []string{"from", "to"}
)

// learn remembers the names in a value as JSON has it.
func (p *pseudonyms) learn(v any) {
	if p.off {
		return
	}
	switch v := v.(type) {
	case []any:
		for i := range v {
			p.learn(v[i])
		}
	case map[string]any:
		for key, inner := range v {
			p.learnField(key, inner)
			p.learn(inner)
		}
	}
}

func (p *pseudonyms) learnField(key string, v any) {
	text, _ := v.(string)
	switch {
	case slices.Contains(references, key):
		p.named(v)
	case slices.Contains(lists, key):
		items, _ := v.([]any)
		for _, item := range items {
			p.named(item)
		}
	case slices.Contains(fields, key):
		for part := range strings.SplitSeq(text, "/") {
			p.of(part)
		}
	case slices.Contains(keyed, key):
		amounts, _ := v.(map[string]any)
		for name := range amounts {
			p.of(name)
		}
	case slices.Contains(kinds, key):
		if _, name, ok := strings.Cut(text, "/"); ok {
			p.of(name)
		}
	case key == "image":
		if i := strings.LastIndexByte(text, '/'); i > 0 {
			p.of(text[:i])
		}
	}
}

// learnEach remembers the names in objects, one after the other: a cluster has many.
func learnEach[T any](p *pseudonyms, objects []T) error {
	if p.off {
		return nil
	}
	for i := range objects {
		v, err := generic(&objects[i])
		if err != nil {
			return fmt.Errorf("read the names of the objects: %w", err)
		}
		p.learn(v)
	}
	return nil
}

// named remembers the name, namespace and uid of an object, and its image's registry.
func (p *pseudonyms) named(v any) {
	object, _ := v.(map[string]any)
	for _, key := range []string{"name", "namespace", "uid"} {
		if name, ok := object[key].(string); ok {
			p.of(name)
		}
	}
}

// generic is v as JSON has it: maps, slices, strings, numbers.
func generic(v any) (out any, err error) {
	data, err := json.Marshal(v)
	if err == nil {
		err = utiljson.Unmarshal(data, &out)
	}
	return out, err
}

// spoken are the fields of a log line that are sentences or words of MBCAS itself: only the known names in them are
// replaced. Other strings are names.
var spoken = []string{"time", "level", "msg", "err", "error", "reason", "phase", "mode", "version", "action", "why", "source", "took",
	"interval", "after", "audit", "boundBy", "priority", "outcome", "result", "direction", "kind", "verb", "purpose", "signal", "flag", "state", "stack", "resource", "addr"}

// learnLog remembers the names in the lines of a log that are JSON.
func (p *pseudonyms) learnLog(log string) {
	if p.off {
		return
	}
	for line := range strings.Lines(log) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) != nil {
			continue
		}
		p.learn(fields)
		for key, v := range fields {
			if s, ok := v.(string); ok && !slices.Contains(spoken, key) && strings.ToLower(s) == s && nameLike.MatchString(s) {
				for part := range strings.SplitSeq(s, "/") {
					p.of(part)
				}
			}
		}
	}
}

// nameLike are names of objects, also behind a namespace; not amounts and durations.
var nameLike = regexp.MustCompile(`^[a-z][-a-z0-9.]*(/[a-z0-9][-a-z0-9.]*)?$`)
