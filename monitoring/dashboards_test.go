package monitoring_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// board is what these tests read of a dashboard.
type board struct {
	UID, Title, Description string
	SchemaVersion           int
	Templating              struct {
		List []struct{ Name, Type string }
	}
	Panels []struct {
		ID                       int
		Title, Description, Type string
		GridPos                  struct{ X, Y, W, H int }
		Datasource               source
		Targets                  []struct {
			RefID, Expr string
			Datasource  source
		}
	}
}

type source struct{ Type, UID string }

func boards(t *testing.T) map[string]board {
	t.Helper()
	files, err := filepath.Glob("dashboards/*.json")
	must.Succeed(t, err)
	found := map[string]board{}
	for _, file := range files {
		var b board
		if err := json.Unmarshal([]byte(read(t, file)), &b); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found[file] = b
	}
	if len(found) != 5 {
		t.Errorf("%d dashboards, want 5", len(found))
	}
	return found
}

// TestDashboards: a dashboard asks a question, and so does each panel or it says what it shows; identities are unique,
// panels do not overlap, and every data source is the variable.
func TestDashboards(t *testing.T) {
	uids := map[string]bool{}
	for file, b := range boards(t) {
		if uids[b.UID] || b.UID == "" || file != "dashboards/"+b.UID+".json" {
			t.Errorf("%s has the uid %q", file, b.UID)
		}
		uids[b.UID] = true
		if !strings.HasSuffix(b.Title, "?") || b.Description == "" || b.SchemaVersion == 0 {
			t.Errorf("%s: title %q, description %q, version %d", file, b.Title, b.Description, b.SchemaVersion)
		}
		variables := map[string]bool{}
		for _, v := range b.Templating.List {
			variables[v.Name] = true
		}
		if !variables["datasource"] || !variables["cluster"] {
			t.Errorf("%s has the variables %v", file, variables)
		}
		taken, ids := map[[2]int]string{}, map[int]bool{}
		for _, p := range b.Panels {
			where := fmt.Sprintf("%s, panel %q", file, p.Title)
			if ids[p.ID] || p.ID == 0 || p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
				t.Errorf("%s: id %d, description %q, %d queries", where, p.ID, p.Description, len(p.Targets))
			}
			ids[p.ID] = true
			if g := p.GridPos; g.X < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
				t.Errorf("%s is at %+v", where, g)
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s overlaps %q", where, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			refs, sources := map[string]bool{}, []source{p.Datasource}
			for _, q := range p.Targets {
				if refs[q.RefID] || !strings.Contains(q.Expr, `cluster=~"$cluster"`) {
					t.Errorf("%s: the query %s is %s: want one reference and the chosen clusters", where, q.RefID,
						q.Expr)
				}
				refs[q.RefID] = true
				sources = append(sources, q.Datasource)
				if strings.Contains(q.Expr, "@") || strings.Contains(q.Expr, "$node") && !variables["node"] {
					t.Errorf("%s: %s has what no variable fills in", where, q.Expr)
				}
			}
			for _, s := range sources {
				if s != (source{"prometheus", "${datasource}"}) {
					t.Errorf("%s has the data source %+v", where, s)
				}
			}
		}
	}
}

// TestDashboardMetricsExist: queries name metrics that the programs serve or that the rules record.
func TestDashboardMetricsExist(t *testing.T) {
	known, used := names(t), map[string]bool{}
	for file, b := range boards(t) {
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				if bad := unknown(known, q.Expr); len(bad) > 0 {
					t.Errorf("%s, panel %q names %q, which nothing serves", file, p.Title, bad)
				}
				for name := range known {
					if name != "" && strings.Contains(q.Expr, name) {
						used[name] = true
					}
				}
			}
		}
	}
	for _, r := range readRules(t).all() {
		if r.Record != "" && !used[r.Record] {
			t.Errorf("no panel shows %s, which is recorded", r.Record)
		}
	}
}
