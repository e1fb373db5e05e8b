#!/bin/sh
# Usage: config/uninstall.sh
# Takes MBCAS off the cluster of kubectl's current context: first every pod gets its declared
# limits back, then what config/base installed is deleted. If a pod cannot be restored nothing
# is deleted; run it again to restore the rest. FORCE=1 deletes all the same: such pods keep their
# limits until they are replaced. TIMEOUT, WORKERS and RATE are those of the restore (30m, 32, 200).
set -eu

here=$(dirname "$0")
kubectl=${KUBECTL:-kubectl}
system=mbcas-system
job=mbcas-restore-$(date +%Y%m%d%H%M%S)

if ! said=$($kubectl get namespace "$system" 2>&1); then
	echo "MBCAS is not installed here: $said" >&2
	exit 1
fi

# phase is that of the Job's pod: none before it is made.
phase() {
	$kubectl -n "$system" get pods -l "job-name=$job" -o 'jsonpath={.items[*].status.phase}' 2>/dev/null || true
}

# setting is an environment variable of the Job, as JSON.
setting() {
	printf '{"name":"MBCAS_RESTORE_%s","value":"%s"}' "$1" "$2"
}

# restore runs the restore in a Job of its own, which pauses the controller first, and shows its
# progress. The audit lines stay in the log of the Job.
restore() {
	# `kubectl set env` prints nothing where the values are those of the template.
	env="$(setting TIMEOUT "${TIMEOUT:-30m}"),$(setting WORKERS "${WORKERS:-32}"),$(setting RATE "${RATE:-200}")"
	$kubectl -n "$system" create job "$job" --from=cronjob/mbcas-restore --dry-run=client -o yaml |
		$kubectl patch --local -f - --type=strategic -o yaml \
			-p '{"spec":{"template":{"spec":{"containers":[{"name":"restore","env":['"$env"']}]}}}}' |
		$kubectl create -f - || return 1
	waited=0
	ran=
	since=0s # all of the log; after an interruption, the end of it
	while :; do
		case $(phase) in
		Running)
			waited=0
			ran=1
			$kubectl -n "$system" logs -f "job/$job" "--since=$since" | grep -v '"audit":true' || true
			since=5s
			;;
		Succeeded | Failed)
			# Its log was not shown if it was not seen to run.
			test "$since" = 5s || $kubectl -n "$system" logs "job/$job" | grep -v '"audit":true' || true
			test "$(phase)" = Succeeded
			return
			;;
		*)
			waited=$((waited + 2))
			if test "$waited" -gt 180 && test -n "$ran"; then
				echo "the state of Job $job has not been known for three minutes; it may still run: kubectl -n $system logs -f job/$job" >&2
				return 1
			elif test "$waited" -gt 180; then
				$kubectl -n "$system" describe pods -l "job-name=$job" >&2 || true
				echo "the pod of Job $job has not started in three minutes" >&2
				$kubectl -n "$system" delete job "$job" >&2 || true
				return 1
			fi
			;;
		esac
		sleep "${POLL:-2}"
	done
}

echo "restoring the declared limits (Job $job)"
if ! restore; then
	if test "${FORCE:-}" != 1; then
		echo "nothing was deleted; run this again once the above is mended, or restore with your own rights (kubectl mbcas restore --all -A) and run this with FORCE=1" >&2
		exit 1
	fi
	echo "not everything is restored; going on because of FORCE=1"
fi

echo "deleting MBCAS"
$kubectl delete -k "$here/base" --ignore-not-found --wait=true --timeout=120s
# Of components/plugin-users and components/secure-metrics.
$kubectl delete clusterrole mbcas-plugin mbcas-plugin-resize mbcas-controller-metrics mbcas-metrics-reader --ignore-not-found
$kubectl delete clusterrolebinding mbcas-controller-metrics --ignore-not-found
# components/default-limits, which needs Kubernetes 1.36. Pods keep the limits that it gave.
if ! served=$($kubectl get --raw /apis/admissionregistration.k8s.io/v1); then
	echo "cannot tell whether the policy mbcas-default-limits is there, as the API server does not say which kinds it serves;" \
		"run: $kubectl delete mutatingadmissionpolicybinding,mutatingadmissionpolicy mbcas-default-limits" >&2
	exit 1
fi
case $served in
*'"mutatingadmissionpolicies"'*)
	$kubectl delete mutatingadmissionpolicybinding,mutatingadmissionpolicy mbcas-default-limits --ignore-not-found
	;;
esac
echo "MBCAS is gone; labels mbcas.io/mode and mbcas.io/default-limit of namespaces stay, and act again once MBCAS is" \
	"installed again; to remove one: $kubectl label namespace -l LABEL LABEL-"
