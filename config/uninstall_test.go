package config_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// kubectlStub notes what it is asked, and answers for the Job what the test says: a phase per line, of which
// the last stays.
const kubectlStub = `#!/bin/sh
echo "$*" >> "$NOTES"
case "$*" in
*"create job"*)
	echo '{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers":
		[{"name": "restore", "image": "x", "env": [{"name": "MBCAS_RESTORE_TIMEOUT", "value": "30m"},
		{"name": "MBCAS_RESTORE_WORKERS", "value": "32"}, {"name": "MBCAS_RESTORE_RATE", "value": "200"}]}]}}}}'
	;;
"patch --local"*) "$REAL" "$@" ;;
"create -f -") grep -A 1 MBCAS_RESTORE_ | tr -d '\n' >> "$NOTES" ;;
*"get pods"*)
	head -n 1 "$PHASES" | tr -d '\n'
	if test "$(wc -l < "$PHASES")" -gt 1; then sed -i 1d "$PHASES"; fi
	;;
*" logs "*)
	echo '{"msg":"resize","audit":true}'
	echo "2 pods restored"
	;;
esac
`

// TestUninstall: the script restores in a Job of its own, with the settings that it was given, shows the
// progress without the audit lines, and deletes nothing unless the Job succeeds or FORCE=1 is set. The
// Job is made of the template by the real kubectl.
func TestUninstall(t *testing.T) {
	for name, c := range map[string]struct {
		phases  []string
		env     []string
		deletes bool
		shows   bool
	}{
		"succeeds":         {[]string{"", "Pending", "Running", "Succeeded"}, nil, true, true},
		"was not seen":     {[]string{"Pending", "Succeeded"}, nil, true, true},
		"fails":            {[]string{"Running", "Failed"}, nil, false, true},
		"fails, by force":  {[]string{"Running", "Failed"}, []string{"FORCE=1"}, true, true},
		"does not start":   {[]string{"Pending"}, nil, false, false},
		"with other times": {[]string{"Running", "Succeeded"}, []string{"TIMEOUT=7m", "WORKERS=3", "RATE=9"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			notes, phases := filepath.Join(dir, "notes"), filepath.Join(dir, "phases")
			stub := filepath.Join(dir, "kubectl")
			must.Succeed(t, os.WriteFile(stub, []byte(kubectlStub), 0o700))
			must.Succeed(t, os.WriteFile(phases, []byte(strings.Join(c.phases, "\n")+"\n"), 0o600))
			cmd := exec.Command("sh", "uninstall.sh")
			cmd.Env = append(os.Environ(), append(c.env, "KUBECTL="+stub, "REAL="+kubectl(t), "NOTES="+notes, "PHASES="+phases, "POLL=0")...)
			out, err := cmd.CombinedOutput()
			asked, readErr := os.ReadFile(notes)
			must.Succeed(t, readErr)
			if deleted := strings.Contains(string(asked), "delete -k"); deleted != c.deletes || (err == nil) != c.deletes {
				t.Errorf("deleted %v, error %v\n%s\nasked:\n%s", deleted, err, out, asked)
			}
			if shown := strings.Contains(string(out), "2 pods restored"); shown != c.shows || strings.Contains(string(out), "audit") {
				t.Errorf("output:\n%s", out)
			}
			want := []string{"30m", `"32"`, `"200"`}
			if name == "with other times" {
				want = []string{"7m", `"3"`, `"9"`}
			}
			made := strings.Join(strings.Fields(string(asked)), " ")
			for i, setting := range []string{"TIMEOUT", "WORKERS", "RATE"} {
				if env := "name: MBCAS_RESTORE_" + setting + " value: " + want[i]; !strings.Contains(made, env) {
					t.Errorf("the Job lacks %q:\n%s", env, asked)
				}
			}
			if !strings.Contains(made, "--from=cronjob/mbcas-restore") {
				t.Errorf("asked:\n%s\nwant a Job of the CronJob", asked)
			}
		})
	}
}
