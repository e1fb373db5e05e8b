package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// SettingsName is the ConfigMap in the namespace of MBCAS in which the controller publishes its
// effective settings; SettingsKey is the key of its data.
const (
	SettingsName = "mbcas-settings"
	SettingsKey  = "settings.json"
)

// Flags of the controller that other programs read from the published settings.
const (
	ModeFlag                  = "mode"
	ExternalChangeHoldOffFlag = "external-change-holdoff"
	RollbackHoldOffFlag       = "rollback-holdoff"
	RestoreAfterFlag          = "restore-after"
	QuotaHeadroomFlag         = "quota-headroom"
	MaxFactorFlag             = "max-declared-factor"
	MinFactorFlag             = "min-declared-factor"
	CanaryFlag                = "canary-percent"
	NoChangeFlag              = "no-change-windows"
	PodLevelFlag              = "pod-level-resources"

	versionKey = "version"
)

// Settings are the effective values of the controller's flags as text, by the flag's name without
// dashes. A value that is missing or cannot be read is unknown: no reader replaces it by a default
// of its own.
type Settings map[string]string

// NewSettings are the values of flags in a controller of a version.
func NewSettings(version string, flags map[string]string) Settings {
	s := Settings{versionKey: version}
	maps.Copy(s, flags)
	return s
}

// ReadSettings reads the ConfigMap that the controller publishes.
func ReadSettings(cm *corev1.ConfigMap) (Settings, error) {
	text, ok := cm.Data[SettingsKey]
	if !ok {
		return nil, fmt.Errorf("ConfigMap %s/%s has no key %s: restart the controller, which writes it", cm.Namespace,
			cm.Name, SettingsKey)
	}
	var s Settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s, key %s: %w; restart the controller, which writes it", cm.Namespace,
			cm.Name, SettingsKey, err)
	}
	return s, nil
}

// Data is the data of the ConfigMap.
func (s Settings) Data() (map[string]string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the settings: %w", err)
	}
	return map[string]string{SettingsKey: string(text)}, nil
}

// Version is the version of the controller; "" if unknown.
func (s Settings) Version() string { return s[versionKey] }

// Mode is the mode of namespaces without a mode label; "" if unknown.
func (s Settings) Mode() Mode {
	m, _ := ParseMode(s[ModeFlag])
	return m
}

// PodLevel says whether the controller manages pods by a CPU limit of their own.
func (s Settings) PodLevel() bool { return s[PodLevelFlag] == "true" }

// Duration is the value of a flag that is a duration; false if unknown.
func (s Settings) Duration(flag string) (time.Duration, bool) {
	d, err := time.ParseDuration(s[flag])
	return d, err == nil
}

// Share is the value of a flag that is a share between 0 and 1; false if unknown.
func (s Settings) Share(flag string) (float64, bool) {
	f, err := strconv.ParseFloat(s[flag], 64)
	return f, err == nil && f >= 0 && f <= 1
}
