//! The words that the grammar of the built-in corpus draws from.

/// Heroes and friends that are "she".
pub(super) const GIRLS: [&str; 24] = [
    "Anna", "Bella", "Clara", "Dora", "Ella", "Fern", "Greta", "Hazel", "Iris", "Julia", "Kate", "Lily", "Mira",
    "Nora", "Olive", "Poppy", "Rosa", "Sara", "Tilda", "Una", "Vera", "Willa", "Yara", "Zoe",
];

/// Heroes and friends that are "he".
pub(super) const BOYS: [&str; 24] = [
    "Adam", "Ben", "Carl", "David", "Emil", "Finn", "Gus", "Hugo", "Ivan", "Jack", "Karl", "Leo", "Max", "Ned", "Otto",
    "Paul", "Quinn", "Ralph", "Sam", "Tom", "Urban", "Victor", "Walter", "Yuri",
];

/// What a hero or a friend is.
pub(super) const KINDS: [&str; 32] = [
    "fox", "owl", "bear", "mouse", "rabbit", "badger", "hedgehog", "otter", "squirrel", "frog", "goat", "donkey",
    "duck", "goose", "cat", "dog", "pony", "lamb", "mole", "raven", "sparrow", "turtle", "deer", "beaver", "farmer",
    "baker", "sailor", "painter", "miller", "tailor", "gardener", "fisher",
];

/// What a hero or a friend is like.
pub(super) const TRAITS: [&str; 28] = [
    "small", "brave", "clever", "shy", "gentle", "curious", "cheerful", "quiet", "proud", "loyal", "eager", "patient",
    "lazy", "merry", "careful", "hungry", "sleepy", "stubborn", "friendly", "young", "tall", "funny", "polite", "wise",
    "humble", "lonely", "noisy", "kind",
];

/// Colours of things.
pub(super) const COLORS: [&str; 10] = [
    "red", "blue", "green", "yellow", "white", "black", "brown", "golden", "silver", "purple",
];

/// Things that one can carry, lose, give and find.
pub(super) const THINGS: [&str; 40] = [
    "kite", "ball", "hat", "scarf", "drum", "bell", "lamp", "book", "basket", "bucket", "spoon", "cup", "button",
    "ribbon", "feather", "key", "coin", "ring", "whistle", "flute", "mirror", "blanket", "pillow", "umbrella", "wagon",
    "boat", "clock", "map", "letter", "candle", "brush", "rope", "hammer", "stone", "shell", "apron", "jar", "kettle",
    "ladder", "lantern",
];

/// Places to live in and to go to.
pub(super) const PLACES: [&str; 36] = [
    "mill",
    "barn",
    "bridge",
    "river",
    "forest",
    "meadow",
    "hill",
    "garden",
    "market",
    "harbor",
    "castle",
    "cave",
    "pond",
    "village",
    "tower",
    "school",
    "orchard",
    "well",
    "farm",
    "lake",
    "beach",
    "valley",
    "bakery",
    "stable",
    "cottage",
    "church",
    "field",
    "island",
    "tent",
    "library",
    "shop",
    "road",
    "oak",
    "waterfall",
    "fountain",
    "gate",
];

/// What a place is like.
pub(super) const PLACE_ADJECTIVES: [&str; 16] = [
    "old", "little", "big", "dark", "sunny", "empty", "stony", "busy", "lovely", "narrow", "wide", "ancient", "hidden",
    "wooden", "windy", "silent",
];

/// Food that is counted, one and many.
pub(super) const FOODS: [(&str, &str); 20] = [
    ("apple", "apples"),
    ("pear", "pears"),
    ("plum", "plums"),
    ("cherry", "cherries"),
    ("carrot", "carrots"),
    ("turnip", "turnips"),
    ("potato", "potatoes"),
    ("onion", "onions"),
    ("egg", "eggs"),
    ("cake", "cakes"),
    ("pie", "pies"),
    ("cookie", "cookies"),
    ("nut", "nuts"),
    ("berry", "berries"),
    ("peach", "peaches"),
    ("bean", "beans"),
    ("melon", "melons"),
    ("muffin", "muffins"),
    ("radish", "radishes"),
    ("fig", "figs"),
];

/// How one feels at an end.
pub(super) const FEELINGS: [&str; 14] = [
    "happy",
    "glad",
    "thankful",
    "pleased",
    "cheered",
    "content",
    "delighted",
    "joyful",
    "calm",
    "satisfied",
    "grateful",
    "relieved",
    "warm",
    "excited",
];

/// What can be learned.
pub(super) const SKILLS: [&str; 14] = [
    "swim", "sing", "dance", "paint", "read", "cook", "sew", "climb", "whistle", "fish", "juggle", "skate", "knit",
    "row",
];

/// When a story begins to move.
pub(super) const TIMES: [&str; 12] = [
    "one morning",
    "one day",
    "one evening",
    "one afternoon",
    "one spring day",
    "one summer day",
    "one autumn day",
    "one winter day",
    "early one morning",
    "late one evening",
    "on a rainy day",
    "on a holiday",
];

/// What the sky does.
pub(super) const WEATHERS: [&str; 10] = [
    "the sun was shining",
    "the wind was blowing",
    "the rain was falling",
    "the snow was falling",
    "the sky was gray",
    "the air was fresh",
    "the clouds were low",
    "the birds were singing",
    "the grass was wet",
    "the leaves were turning",
];

/// The numbers of counted food.
pub(super) const NUMBERS: [&str; 13] = [
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
];

/// Members of a family.
pub(super) const ELDERS: [&str; 6] = ["mother", "father", "grandmother", "grandfather", "aunt", "uncle"];
