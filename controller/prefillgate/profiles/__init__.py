"""A serving profile, told by the workload that runs it: image, arguments, environment, mounted config, as settings.

Everything here is a pure function of the dicts that an API server returns. Secrets are known by name, key and checksum
annotation; a credential that stands in a text is sealed before anything else sees it, so no output can hold it.
"""

from prefillgate.profiles.arms import ArmMatch as ArmMatch
from prefillgate.profiles.arms import arm_of as arm_of
from prefillgate.profiles.compare import differences as differences
from prefillgate.profiles.compare import each_in_words as each_in_words
from prefillgate.profiles.compare import in_words as in_words
from prefillgate.profiles.marks import IMAGE as IMAGE
from prefillgate.profiles.marks import from_same_template as from_same_template
from prefillgate.profiles.marks import joined as joined
from prefillgate.profiles.marks import told_apart as told_apart
from prefillgate.profiles.model import Part as Part
from prefillgate.profiles.model import Profile as Profile
from prefillgate.profiles.model import ProfileError as ProfileError
from prefillgate.profiles.model import Setting as Setting
from prefillgate.profiles.reading import reading_of as reading_of
from prefillgate.profiles.record import Recorded as Recorded
from prefillgate.profiles.record import Told as Told
from prefillgate.profiles.record import recorded as recorded
from prefillgate.profiles.record import shown_profile as shown_profile
from prefillgate.profiles.seal import Seal as Seal
from prefillgate.profiles.sources import SecretFacts as SecretFacts
from prefillgate.profiles.sources import Sources as Sources
from prefillgate.profiles.sources import config_map_data as config_map_data
from prefillgate.profiles.sources import image_ids_of as image_ids_of
from prefillgate.profiles.sources import needed_config_maps as needed_config_maps
from prefillgate.profiles.sources import secret_facts as secret_facts
from prefillgate.profiles.sources import used_config_maps as used_config_maps
from prefillgate.profiles.sources import used_secrets as used_secrets
from prefillgate.profiles.workloads import RBAC as RBAC
from prefillgate.profiles.workloads import Rule as Rule
from prefillgate.profiles.workloads import inline_profile as inline_profile
from prefillgate.profiles.workloads import profile_of as profile_of
from prefillgate.profiles.workloads import rules_for as rules_for
