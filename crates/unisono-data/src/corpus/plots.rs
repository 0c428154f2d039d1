//! The sentences of the built-in corpus: what every story begins with, its plots and its ends.
//!
//! A *beat* is a list of wordings of one moment, of which a story takes one. Names in braces are filled from the story's
//! cast (`Cast::value`); a capital first letter in the braces makes a capital in the text, and `{a ...}` puts the article
//! that the word asks for.

/// The wordings of one moment.
pub(super) type Beat = &'static [&'static str];

/// Who and where.
pub(super) const OPENING: &[Beat] = &[
    &[
        "Once there was {a trait} {kind} named {name}.",
        "Long ago there lived {a trait} {kind} called {name}.",
        "There was once {a trait} {kind} whose name was {name}.",
    ],
    &[
        "{He} lived near the {home} with {his} {elder}.",
        "{His} house stood by the {home}.",
        "Every day {he} walked to the {home}.",
    ],
    &[
        "{His} best friend was {a ftrait} {fkind} named {friend}.",
        "{He} had a good friend, {a ftrait} {fkind} called {friend}.",
        "{Name} often played with {a ftrait} {fkind} named {friend}.",
    ],
];

/// What happens, one plot a story.
pub(super) const PLOTS: &[&[Beat]] = &[
    // Something is lost and found.
    &[
        &[
            "{Time} {name} could not find {his} {color} {thing}.",
            "{Time} {name} lost {his} {color} {thing}.",
        ],
        &[
            "{He} looked under the bed and behind the door, but the {thing} was not there.",
            "{He} looked in every corner of the house, but the {color} {thing} was gone.",
        ],
        &[
            "\"Have you seen my {color} {thing}?\" {name} asked {his} {elder}.",
            "\"Where is my {thing}?\" {name} asked {his} {elder}.",
        ],
        &[
            "\"No,\" said {his} {elder}. \"Ask {friend}. {Fhe} sees everything.\"",
            "\"I have not seen it,\" said {his} {elder}. \"Maybe {friend} knows.\"",
        ],
        &[
            "So {name} ran to {friend}.",
            "So {name} went to the {place}, where {friend} was waiting.",
        ],
        &[
            "\"I saw {a color} {thing} near the {place},\" said {friend}.",
            "\"There is something {color} near the {place},\" said {friend}.",
        ],
        &[
            "They went to the {place} together, and there was the {thing}.",
            "They walked to the {place}, and {friend} found the {thing} in the grass.",
        ],
    ],
    // A gift.
    &[
        &[
            "{Time} {weather}, and it was the birthday of {friend}.",
            "It was almost the birthday of {friend}.",
        ],
        &[
            "{Name} wanted to give {fhim} {a color} {thing}.",
            "{Name} wished to make {a color} {thing} for {friend}.",
        ],
        &[
            "{He} worked all day, and {his} {elder} helped {him}.",
            "{He} worked in the {home} until the moon came up.",
        ],
        &[
            "At last the {thing} was ready, and it was very {color}.",
            "When the {thing} was done, {name} put it in a box.",
        ],
        &[
            "\"This is for you,\" said {name}, and {he} gave the {thing} to {friend}.",
            "\"Happy birthday, {friend}!\" said {name}. \"I made you {a thing}.\"",
        ],
        &[
            "\"Oh, {a color} {thing}!\" said {friend}. \"Thank you, {name}!\"",
            "{Friend} opened the box and saw the {color} {thing}. \"Thank you!\" {fhe} said.",
        ],
    ],
    // Counting and sharing.
    &[
        &[
            "{Time} {name} went to the {place} and found {n} {foods}.",
            "{Time} {his} {elder} gave {name} {n} {foods}.",
        ],
        &[
            "{He} put the {n} {foods} in a basket.",
            "\"I have {n} {foods}!\" said {name}.",
        ],
        &[
            "On the way home {he} met {friend}.",
            "Then {friend} came along the road.",
        ],
        &[
            "\"I am so hungry,\" said {friend}. \"I have no {foods} at all.\"",
            "\"What fine {foods}!\" said {friend}. \"I have had nothing to eat.\"",
        ],
        &[
            "\"You can have {m},\" said {name}, and {he} gave {fhim} {m} {foods}.",
            "So {name} gave {m} {foods} to {friend}.",
        ],
        &[
            "Now {name} had {rest} and {friend} had {m}.",
            "Then {friend} had {m} and {name} had {rest}.",
        ],
        &[
            "They sat down by the {place} and ate the {foods} together.",
            "The {foods} tasted sweet, for they were shared.",
        ],
    ],
    // A storm.
    &[
        &[
            "{Time} {name} and {friend} were at the {place}.",
            "{Time} {name} went to the {place} with {friend}.",
        ],
        &[
            "Suddenly the sky grew dark, and a storm came.",
            "Then the wind began to blow, and there was thunder.",
        ],
        &[
            "\"I am afraid,\" said {friend}. \"Where can we go?\"",
            "{Friend} was afraid of the storm, and {fhe} began to cry.",
        ],
        &[
            "\"Hold my hand,\" said {name}. \"We will run to the {home}.\"",
            "\"Do not be afraid,\" said {name}. \"I know a dry place.\"",
        ],
        &[
            "They ran through the rain until they came to the {home}.",
            "{Name} led {friend} through the rain to the {home}.",
        ],
        &[
            "There {his} {elder} gave them hot soup and a dry blanket.",
            "There they sat by the fire and listened to the rain.",
        ],
        &[
            "In the morning the storm was over.",
            "Soon the rain stopped and the sun came out.",
        ],
    ],
    // A race.
    &[
        &[
            "{Time} {friend} said, \"Let us race to the {place}!\"",
            "{Time} there was a race to the {place}.",
        ],
        &[
            "\"I am faster than you,\" said {friend}. \"You will never win.\"",
            "{Friend} was very fast, and {fhe} laughed at {name}.",
        ],
        &[
            "\"We will see,\" said {name}.",
            "{Name} said nothing, but {he} wanted to win.",
        ],
        &["One, two, three, and they ran!", "They ran as fast as they could."],
        &[
            "{Friend} was first, but near the {place} {fhe} fell over {a thing}.",
            "Half way to the {place}, {friend} stopped to pick up {a thing}.",
        ],
        &[
            "{Name} did not run on. {He} came back and helped {friend} up.",
            "{Name} could have won, but {he} waited for {friend}.",
        ],
        &[
            "So they came to the {place} side by side.",
            "They reached the {place} together, and nobody lost.",
        ],
    ],
    // A garden.
    &[
        &[
            "{Time} {name} planted one {food} behind the house.",
            "{Time} {his} {elder} gave {name} a seed.",
        ],
        &[
            "Every day {he} gave it water.",
            "Every morning {he} watered it with care.",
        ],
        &[
            "\"Nothing is growing,\" said {friend}. \"You should stop.\"",
            "{Friend} came to look, but there was only earth.",
        ],
        &[
            "\"I will wait,\" said {name}.",
            "But {name} was patient, and {he} waited.",
        ],
        &[
            "After {m} weeks a small green leaf came up.",
            "After {m} days of rain it began to grow.",
        ],
        &[
            "It grew and grew, and in the end there were {n} {foods}.",
            "At the end of summer {name} counted {n} {foods}.",
        ],
        &[
            "{He} kept {rest} and gave {m} {foods} to {friend}.",
            "{He} gave {m} of them to {friend} and kept {rest}.",
        ],
    ],
    // A rescue.
    &[
        &[
            "{Time} {friend} went to the {place} alone.",
            "{Time} {weather}, and {friend} walked to the {place} alone.",
        ],
        &[
            "{Fhe} slipped and fell into a deep hole.",
            "There {fhe} fell into the cold water.",
        ],
        &[
            "\"Help! Help!\" cried {friend}.",
            "\"Please help me!\" called {friend}.",
        ],
        &[
            "{Name} heard {fhim} and ran to the {place}.",
            "{Name} was at the {home} when {he} heard the cry.",
        ],
        &[
            "{He} took {a color} {thing} and held it out to {friend}.",
            "{He} tied {a color} rope to a tree and threw it to {friend}.",
        ],
        &[
            "\"Hold on,\" said {name}. \"I will pull you out.\"",
            "{Name} pulled and pulled with all {his} strength.",
        ],
        &[
            "In the end {friend} was safe. \"You saved me, {name},\" {fhe} said.",
            "At last {friend} came out. \"Thank you, {name},\" {fhe} said.",
        ],
    ],
    // A trade.
    &[
        &[
            "{Time} {name} went to the market with {n} {foods}.",
            "{Time} {name} took {n} {foods} to the market.",
        ],
        &[
            "There {he} saw {a color} {thing}.",
            "In one shop there was {a color} {thing}.",
        ],
        &[
            "\"How much is the {thing}?\" {name} asked.",
            "\"I would like that {color} {thing},\" said {name}.",
        ],
        &[
            "\"It costs {m} {foods},\" said the old woman in the shop.",
            "\"You can have it for {m} {foods},\" said the man in the shop.",
        ],
        &[
            "{Name} paid {m} {foods} and had {rest} left.",
            "So {he} paid {m} {foods}, and {rest} were left.",
        ],
        &[
            "At the {home} {he} showed the {color} {thing} to {friend}.",
            "{He} carried the {thing} home and showed it to {friend}.",
        ],
        &[
            "\"What a fine {thing}!\" said {friend}, and {name} gave {fhim} the last {foods}.",
            "\"It is the best {thing} in the world,\" said {friend}.",
        ],
    ],
    // A secret.
    &[
        &[
            "{Time} {name} found an old box near the {place}.",
            "{Time} {name} was digging by the {place} and found a box.",
        ],
        &[
            "The box was locked, and it was very heavy.",
            "{He} could not open the box.",
        ],
        &["\"I need a key,\" {he} thought.", "{He} carried the box to {friend}."],
        &[
            "{Friend} had {a color} key, and {fhe} gave it to {name}.",
            "\"Try my {color} key,\" said {friend}.",
        ],
        &[
            "The {color} key turned, and the box opened.",
            "They turned the {color} key, and click, it was open.",
        ],
        &[
            "Inside there was {a thing} and a letter.",
            "Inside lay {a thing}, as good as new.",
        ],
        &[
            "The letter said: \"Whoever finds this {thing} may keep it.\"",
            "\"It was mine when I was young,\" said {his} {elder}. \"Now the {thing} is yours.\"",
        ],
    ],
    // Something learned.
    &[
        &[
            "{Name} did not know how to {skill}.",
            "More than anything, {name} wanted to {skill}.",
        ],
        &[
            "\"I can not {skill},\" {he} said. \"It is too hard.\"",
            "{He} tried to {skill}, but it went badly.",
        ],
        &[
            "{Time} {friend} said, \"I will teach you to {skill}.\"",
            "{Time} {name} asked {friend}, \"Can you teach me to {skill}?\"",
        ],
        &[
            "They went to the {place} every day for {n} days.",
            "They met at the {place} {n} times.",
        ],
        &[
            "On the first day {name} wanted to give up.",
            "At first {name} made many mistakes.",
        ],
        &[
            "\"Try again,\" said {friend}. \"You are doing well.\"",
            "\"Do not stop now,\" said {friend}. \"Try once more.\"",
        ],
        &[
            "On the last day {name} could {skill} as well as {friend}.",
            "In the end {name} could {skill} better than {his} {elder}.",
        ],
    ],
    // Something broken.
    &[
        &[
            "{Time} {name} borrowed the {color} {thing} of {friend}.",
            "{Time} {friend} let {name} hold {fhis} {color} {thing}.",
        ],
        &[
            "But {name} was not careful, and the {thing} broke.",
            "Then the {thing} fell down and broke in two.",
        ],
        &[
            "{Name} was afraid and hid the {thing} near the {place}.",
            "At first {name} did not want to tell anyone.",
        ],
        &[
            "That night {he} could not sleep. \"I must tell {friend},\" {he} thought.",
            "\"You must tell the truth,\" said {his} {elder}.",
        ],
        &[
            "In the morning {name} said, \"I broke your {thing}. I am sorry.\"",
            "So {name} went to {friend}. \"I broke your {color} {thing},\" {he} said.",
        ],
        &[
            "\"Thank you for telling me,\" said {friend}. \"We can mend the {thing}.\"",
            "{Friend} was not angry. \"It is only {a thing},\" {fhe} said.",
        ],
        &[
            "They mended the {color} {thing} together.",
            "They worked together, and soon the {thing} was whole again.",
        ],
    ],
    // A journey.
    &[
        &[
            "{Time} {name} and {friend} set out to see the {place}.",
            "{Time} {name} said to {friend}, \"Let us go to the {place}.\"",
        ],
        &[
            "They took {n} {foods} and {a color} {thing}.",
            "{Name} carried {n} {foods}, and {friend} carried {a thing}.",
        ],
        &[
            "They walked over hills and through fields.",
            "It was a long way, and {weather}.",
        ],
        &[
            "At noon they ate {m} {foods}, and {rest} were left.",
            "On the way they ate {m} of the {foods}, so {rest} were left.",
        ],
        &["\"Are we lost?\" asked {friend}.", "\"My feet hurt,\" said {friend}."],
        &[
            "\"No,\" said {name}. \"I can see the {place} from here.\"",
            "\"Look,\" said {name}. \"There is the {place}!\"",
        ],
        &[
            "They ate the last {rest} {foods} and watched the stars.",
            "At the {place} they made a fire and ate the last {foods}.",
        ],
    ],
];

/// How it ends.
pub(super) const ENDING: &[Beat] = &[
    &[
        "{Name} was {feeling}, and {friend} was {feeling} too.",
        "{Friend} smiled, and {name} felt {feeling}.",
        "\"You are a true friend,\" {name} said to {friend}.",
        "\"What a day!\" said {his} {elder} that night.",
    ],
    &[
        "From that day on, {name} and {friend} were always together.",
        "And {name} never forgot that day at the {place}.",
        "Then the {kind} and the {fkind} went home to the {home}.",
        "That night {name} slept well, and so did {friend}.",
    ],
];
